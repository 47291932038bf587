import { useInfiniteQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { type SignerSession, type UserRef, signerSessionsQuery } from '../../api/users.ts'
import { Answer } from '../../ui/answer.tsx'
import { Button } from '../../ui/button.tsx'
import { Confirm } from '../../ui/confirm.tsx'
import { Instant } from '../../ui/instant.tsx'
import { More } from '../../ui/more.tsx'
import { Name } from '../../ui/name.tsx'
import { Empty } from '../../ui/states.tsx'
import { TableBox } from '../../ui/table-box.tsx'
import { useEndSignerSession } from '../changes.ts'

interface SignerSessionsProps {
  readonly user: UserRef
  readonly canEdit: boolean
}

/** The sessions that a user's token was exchanged for; members with edit rights end them. */
export function SignerSessions({ user, canEdit }: SignerSessionsProps): ReactNode {
  const sessions = useInfiniteQuery(signerSessionsQuery(user))
  const [ending, setEnding] = useState<SignerSession | null>(null)
  return (
    <section className="card" aria-labelledby="signer-sessions">
      <h2 id="signer-sessions">Signer sessions</h2>
      <p className="soft">
        A token of the user was exchanged for each. It allows calls until it ends.
      </p>
      <Answer query={sessions}>
        {({ pages }) => {
          const all = pages.flatMap((page) => page.sessions)
          return all.length > 0 ? (
            <SessionTable sessions={all} {...(canEdit && { onEnd: setEnding })} />
          ) : (
            <Empty>The user has no signer session.</Empty>
          )
        }}
      </Answer>
      <More query={sessions} label="Show older" />
      {ending && <End user={user} session={ending} onClose={() => setEnding(null)} />}
    </section>
  )
}

interface SessionTableProps {
  readonly sessions: readonly SignerSession[]
  readonly onEnd?: (session: SignerSession) => void
}

const SessionTable = ({ sessions, onEnd }: SessionTableProps): ReactNode => (
  <TableBox label="Table of signer sessions">
    <table>
      <thead>
        <tr>
          <th scope="col">Opened</th>
          <th scope="col">Name</th>
          <th scope="col">Status</th>
          <th scope="col">Last used</th>
          <th scope="col">Ends by itself</th>
          {onEnd && <th scope="col">Actions</th>}
        </tr>
      </thead>
      <tbody>
        {sessions.map((session) => (
          <tr key={session.sessionId}>
            <th scope="row">
              <Instant at={session.createdAt} />
            </th>
            <td>
              <Name>{session.label}</Name>
            </td>
            <td>
              <Status session={session} />
            </td>
            <td>{session.lastUsedAt === null ? 'never' : <Instant at={session.lastUsedAt} />}</td>
            <td>
              <Instant at={session.expiresAt} />
            </td>
            {onEnd && (
              <td>
                {isRunning(session) && (
                  <Button
                    isSmall
                    kind="danger"
                    aria-label={`End the signer session of ${session.createdAt}`}
                    onClick={() => onEnd(session)}
                  >
                    End
                  </Button>
                )}
              </td>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

const isRunning = ({ revokedAt, expiresAt }: SignerSession): boolean =>
  revokedAt === null && Date.parse(expiresAt) > Date.now()

const Status = ({ session }: { session: SignerSession }): ReactNode => (
  <>
    <span className={isRunning(session) ? 'badge good' : 'badge bad'}>
      {isRunning(session) ? 'running' : session.revokedAt === null ? 'expired' : 'ended'}
    </span>
    {session.revokedAt !== null && (
      <small>
        <Instant at={session.revokedAt} />
      </small>
    )}
  </>
)

interface EndProps {
  readonly user: UserRef
  readonly session: SignerSession
  readonly onClose: () => void
}

function End({ user, session, onClose }: EndProps): ReactNode {
  const end = useEndSignerSession(user)
  return (
    <Confirm
      title="End this signer session?"
      effect={
        <>
          Within seconds every call with it is refused with 401, also the next payment of a call
          that runs. Signed tickets are charged; money that is held for other calls comes back by
          itself. An ended session never works again, but a token of the user can open another one.
        </>
      }
      action="End the session"
      isBusy={end.isPending}
      error={end.error}
      onConfirm={() => end.mutate(session.sessionId, { onSuccess: onClose })}
      onClose={onClose}
    />
  )
}
