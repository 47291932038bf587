import { useQuery } from '@tanstack/react-query'
import { Link, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { useRights } from '../api/rights.ts'
import { type UserRef, userQuery } from '../api/users.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { Balance } from './balance.tsx'
import { Decisions } from './decisions.tsx'
import { GiveCredit } from './give-credit.tsx'
import { Holds } from './holds.tsx'
import { Keys } from './credentials/keys.tsx'
import { Limits } from './limits.tsx'
import { Plan } from './plan.tsx'
import { type Part, parts } from './search.ts'
import { Statement } from './statement.tsx'
import { SignerSessions } from './credentials/signer-sessions.tsx'
import { StatusChange, UserStatus } from './status.tsx'
import { Usage } from './usage.tsx'

/** One user: what it has, may and did. */
export function User(): ReactNode {
  const { clientId, externalUserId } = useParams({ from: '/$clientId/users/$externalUserId' })
  const { part = 'money' } = useSearch({ from: '/$clientId/users/$externalUserId' })
  const { canEdit } = useRights(clientId)
  const user = useQuery(userQuery({ clientId, externalUserId }))
  return (
    <Page
      title={externalUserId}
      about={
        <Link to="/$clientId/users" params={{ clientId }}>
          All users
        </Link>
      }
      actions={canEdit && user.data && <StatusChange clientId={clientId} user={user.data} />}
    >
      <Answer query={user} rows={2}>
        {(data) =>
          data === null ? (
            <NoSuchUser externalUserId={externalUserId} />
          ) : (
            <>
              <Facts user={data} />
              <PartLinks />
              <ShownPart
                part={part}
                user={{ clientId, externalUserId }}
                isActive={data.status === 'active'}
                canEdit={canEdit}
              />
            </>
          )
        }
      </Answer>
    </Page>
  )
}

const NoSuchUser = ({ externalUserId }: { externalUserId: string }): ReactNode => (
  <Empty>
    <p>
      This app has no user “<Name>{externalUserId}</Name>”. Capital and small letters differ.
    </p>
  </Empty>
)

const Facts = ({ user }: { user: Schemas['User'] }): ReactNode => (
  <section className="card" aria-label="Facts">
    <dl className="facts">
      <div>
        <dt>Status</dt>
        <dd>
          <UserStatus status={user.status} />
          {user.deactivatedAt !== null && (
            <>
              {' '}
              since <Instant at={user.deactivatedAt} />
            </>
          )}
        </dd>
      </div>
      <div>
        <dt>E-mail address</dt>
        <dd>{user.email === null ? 'none' : <Name>{user.email}</Name>}</dd>
      </div>
      <div>
        <dt>Created</dt>
        <dd>
          <Instant at={user.createdAt} />
        </dd>
      </div>
      <div>
        <dt>Our id</dt>
        <dd>
          <code>{user.id}</code>
        </dd>
      </div>
    </dl>
  </section>
)

const partNames: Readonly<Record<Part, string>> = {
  money: 'Money and plan',
  statement: 'Statement',
  keys: 'Keys',
  limits: 'Limits',
  usage: 'Tickets and sessions',
  decisions: 'Decisions',
}

const PartLinks = (): ReactNode => (
  <nav className="tabs" aria-label="Parts of the user">
    {parts.map((part) => (
      <Link
        key={part}
        from="/$clientId/users/$externalUserId"
        to="."
        search={part === 'money' ? {} : { part }}
        // Every search contains the empty one of the first part.
        activeOptions={{ exact: part === 'money' }}
      >
        {partNames[part]}
      </Link>
    ))}
  </nav>
)

interface ShownPartProps {
  readonly part: Part
  readonly user: UserRef
  readonly isActive: boolean
  readonly canEdit: boolean
}

function ShownPart({ part, user, isActive, canEdit }: ShownPartProps): ReactNode {
  switch (part) {
    case 'money':
      return (
        <>
          <Balance user={user} isActive={isActive} />
          <Holds user={user} />
          {canEdit && <GiveCredit user={user} />}
          <Plan user={user} canEdit={canEdit} />
        </>
      )
    case 'statement':
      return <Statement user={user} />
    case 'keys':
      return (
        <>
          <Keys user={user} canEdit={canEdit} />
          {isActive && <SignerSessions user={user} canEdit={canEdit} />}
        </>
      )
    case 'limits':
      return <Limits user={user} canEdit={canEdit} />
    case 'usage':
      return <Usage user={user} />
    case 'decisions':
      return <Decisions user={user} />
  }
}
