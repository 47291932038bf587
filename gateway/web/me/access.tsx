import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import {
  type OwnLogin,
  ownKeysQuery,
  ownLoginsQuery,
  useEndOwnLogin,
  useRevokeOwnKey,
} from '../api/me.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { KeyTable } from '../ui/keys/key-table.tsx'
import { More } from '../ui/more.tsx'
import { Name } from '../ui/name.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

/** The person's keys and logins in an app, each of which it can end. */
export const Access = ({ clientId }: { clientId: string }): ReactNode => (
  <>
    <Logins clientId={clientId} />
    <Keys clientId={clientId} />
  </>
)

/** The route lists no more. */
const listedMax = 100

function Logins({ clientId }: { clientId: string }): ReactNode {
  const logins = useQuery(ownLoginsQuery(clientId))
  const end = useEndOwnLogin(clientId)
  const [ending, setEnding] = useState<OwnLogin | null>(null)
  const close = (): void => setEnding(null)
  return (
    <section className="card" aria-labelledby="logins">
      <h2 id="logins">Programs and devices that are logged in</h2>
      <Answer query={logins}>
        {(all) =>
          all.length > 0 ? (
            <>
              <LoginTable logins={all} onEnd={setEnding} />
              {all.length >= listedMax && (
                <p className="soft">The newest {listedMax}. End some to see older ones.</p>
              )}
            </>
          ) : (
            <Empty>No program or device is logged in to this app as you.</Empty>
          )
        }
      </Answer>
      {ending && (
        <Confirm
          title="End this login?"
          effect={
            <>
              <LoginName login={ending} /> is logged out, and its tokens are refused within seconds.
              While you are logged in here, it can ask for a new login.
            </>
          }
          action="End the login"
          isBusy={end.isPending}
          error={end.error}
          onConfirm={() => end.mutate(ending.loginId, { onSuccess: close })}
          onClose={close}
        />
      )}
    </section>
  )
}

const LoginName = ({ login: { clientName } }: { login: OwnLogin }): ReactNode =>
  clientName === null ? 'A program of the app' : <Name>{clientName}</Name>

interface LoginTableProps {
  readonly logins: readonly OwnLogin[]
  readonly onEnd: (login: OwnLogin) => void
}

const LoginTable = ({ logins, onEnd }: LoginTableProps): ReactNode => (
  <TableBox label="Table of logins">
    <table>
      <thead>
        <tr>
          <th scope="col">Program</th>
          <th scope="col">May</th>
          <th scope="col">Logged in</th>
          <th scope="col">Last renewed</th>
          <th scope="col">Ends by itself</th>
          <th scope="col">Actions</th>
        </tr>
      </thead>
      <tbody>
        {logins.map((login) => (
          <tr key={login.loginId}>
            <th scope="row">
              <LoginName login={login} />
            </th>
            <td>
              {login.scopes.length > 0 ? (
                <code>{login.scopes.join(' ')}</code>
              ) : (
                <span className="soft">unknown</span>
              )}
            </td>
            <td>
              <Instant at={login.createdAt} />
            </td>
            <td>
              <Instant at={login.lastUsedAt} />
            </td>
            <td>
              <Instant at={login.expiresAt} />
            </td>
            <td>
              <Button
                isSmall
                kind="danger"
                aria-label={`End the login of ${login.createdAt}`}
                onClick={() => onEnd(login)}
              >
                End
              </Button>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

type Key = Schemas['Key']

function Keys({ clientId }: { clientId: string }): ReactNode {
  const keys = useInfiniteQuery(ownKeysQuery(clientId))
  const revoke = useRevokeOwnKey(clientId)
  const [revoked, setRevoked] = useState<Key | null>(null)
  const close = (): void => setRevoked(null)
  return (
    <section className="card" aria-labelledby="keys">
      <h2 id="keys">My keys</h2>
      <p className="soft">The app makes keys for you. You can end them here.</p>
      <Answer query={keys}>
        {({ pages }) => {
          const all = pages.flatMap((page) => page.keys)
          return all.length > 0 ? (
            <KeyTable label="Table of my keys" keys={all} onRevoke={setRevoked} />
          ) : (
            <Empty>You have no key.</Empty>
          )
        }}
      </Answer>
      <More query={keys} label="Show more" />
      {revoked && (
        <Confirm
          title="Revoke this key?"
          effect={
            <>
              Every call with <Name>{revoked.label ?? revoked.prefix}</Name> is refused within
              seconds, and so is every token that was issued for it. A revoked key never works
              again.
            </>
          }
          action="Revoke"
          typed={revoked.prefix}
          isBusy={revoke.isPending}
          error={revoke.error}
          onConfirm={() => revoke.mutate(revoked.keyId, { onSuccess: close })}
          onClose={close}
        />
      )}
    </section>
  )
}
