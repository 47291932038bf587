import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { teamQuery } from '../api/queries.ts'
import { useRights } from '../api/rights.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { Invite } from './invite.tsx'
import { Removal, type Removed } from './removal.tsx'
import { RoleSelect } from './role-select.tsx'

/** The members of an app and the invitations without an answer. */
export function Team(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/team' })
  const team = useQuery(teamQuery(clientId))
  const { canEdit, canOwn, accountId } = useRights(clientId)
  const [removed, setRemoved] = useState<Removed | null>(null)
  const common = { clientId, canEdit, canOwn, onRemove: setRemoved }
  return (
    <Page title="Team" about="Who may see and change this app.">
      {canEdit && <Invite clientId={clientId} canOwn={canOwn} members={team.data?.members ?? []} />}
      <Answer query={team}>
        {({ members, invitations }) => (
          <>
            <Members {...common} members={members} ownId={accountId} />
            {invitations.length > 0 && <Invitations {...common} invitations={invitations} />}
          </>
        )}
      </Answer>
      {removed && (
        <Removal clientId={clientId} removed={removed} onClose={() => setRemoved(null)} />
      )}
    </Page>
  )
}

interface ListProps {
  readonly clientId: string
  readonly canEdit: boolean
  /** Only owners add, change and remove owners. */
  readonly canOwn: boolean
  readonly onRemove: (removed: Removed) => void
}

interface MembersProps extends ListProps {
  readonly members: readonly Schemas['Member'][]
  readonly ownId: string | undefined
}

function Members({ clientId, members, ownId, canEdit, canOwn, onRemove }: MembersProps): ReactNode {
  return (
    <section className="card" aria-labelledby="members">
      <h2 id="members">Members</h2>
      <TableBox label="Table of members">
        <table>
          <thead>
            <tr>
              <th scope="col">Address</th>
              <th scope="col">Role</th>
              <th scope="col">Since</th>
              {canEdit && <th scope="col">Actions</th>}
            </tr>
          </thead>
          <tbody>
            {members.map((member) => {
              const { accountId, email, name, role, createdAt } = member
              const mayChange = canEdit && (role !== 'owner' || canOwn)
              return (
                <tr key={accountId}>
                  <th scope="row">
                    {email} {accountId === ownId && <span className="badge">you</span>}
                    {name && <small className="soft"> {name}</small>}
                  </th>
                  <td>
                    {mayChange ? (
                      <RoleSelect clientId={clientId} member={member} canOwn={canOwn} />
                    ) : (
                      role
                    )}
                  </td>
                  <td>
                    <Instant at={createdAt} />
                  </td>
                  {canEdit && (
                    <td>
                      {mayChange && (
                        <Button
                          isSmall
                          kind="danger"
                          aria-label={`Remove ${email}`}
                          onClick={() => onRemove({ kind: 'member', id: accountId, email })}
                        >
                          Remove
                        </Button>
                      )}
                    </td>
                  )}
                </tr>
              )
            })}
          </tbody>
        </table>
      </TableBox>
    </section>
  )
}

interface InvitationsProps extends ListProps {
  readonly invitations: readonly Schemas['Invitation'][]
}

function Invitations({ invitations, canEdit, canOwn, onRemove }: InvitationsProps): ReactNode {
  return (
    <section className="card" aria-labelledby="invitations">
      <h2 id="invitations">Invitations</h2>
      <p className="soft">
        They answer at <code>{location.origin}/invitations</code>. If this service sends mails, one
        told them so.
      </p>
      <TableBox label="Table of invitations">
        <table>
          <thead>
            <tr>
              <th scope="col">Address</th>
              <th scope="col">Role</th>
              <th scope="col">Invited by</th>
              <th scope="col">Ends</th>
              {canEdit && <th scope="col">Actions</th>}
            </tr>
          </thead>
          <tbody>
            {invitations.map(({ id, email, role, invitedBy, expiresAt }) => (
              <tr key={id}>
                <th scope="row">{email}</th>
                <td>{role}</td>
                <td>{invitedBy}</td>
                <td>
                  <Instant at={expiresAt} />
                </td>
                {canEdit && (
                  <td>
                    {(role !== 'owner' || canOwn) && (
                      <Button
                        isSmall
                        kind="danger"
                        aria-label={`Withdraw the invitation of ${email}`}
                        onClick={() => onRemove({ kind: 'invitation', id, email })}
                      >
                        Withdraw
                      </Button>
                    )}
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </TableBox>
    </section>
  )
}
