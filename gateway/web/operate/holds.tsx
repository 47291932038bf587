import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { type HoldFilter, type UserHolds, holdsQuery } from '../api/operate.ts'
import { Attos } from '../ui/amount.tsx'
import { formatInteger } from '../ui/long-amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

/** Users' money that sidecars may spend, or that waits for tickets. */
export function Holds(): ReactNode {
  const filter = useSearch({ from: '/operate/holds' })
  const holds = useInfiniteQuery(holdsQuery(filter))
  return (
    <Page title="Holds" about="Users’ money that sidecars may spend, or that waits for tickets.">
      <section className="card" aria-label="Holds">
        <Filter key={JSON.stringify(filter)} filter={filter} />
        <Answer query={holds}>
          {({ pages }) => {
            const users = pages.flatMap((page) => page.users)
            return users.length > 0 ? <HoldTable users={users} /> : <Empty>Nothing is held.</Empty>
          }}
        </Answer>
        <More query={holds} label="Show more users" />
      </section>
    </Page>
  )
}

function Filter({ filter }: { filter: HoldFilter }): ReactNode {
  const navigate = useNavigate({ from: '/operate/holds' })
  const [clientId, setClientId] = useState(filter.clientId ?? '')
  const [user, setUser] = useState(filter.externalUserId ?? '')
  const show = (app: string, externalUserId: string): void =>
    void navigate({
      search: {
        ...(app !== '' && { clientId: app }),
        ...(app !== '' && externalUserId !== '' && { externalUserId }),
      },
    })
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault()
        show(clientId.trim(), user.trim())
      }}
    >
      <label>
        Client id of an app
        <input
          type="search"
          maxLength={100}
          required={user !== ''}
          value={clientId}
          onChange={(event) => setClientId(event.target.value)}
        />
      </label>
      <label>
        User
        <input
          type="search"
          maxLength={256}
          value={user}
          onChange={(event) => setUser(event.target.value)}
        />
      </label>
      <Button type="submit">Show</Button>
      {filter.clientId !== undefined && <Button onClick={() => show('', '')}>Show all</Button>}
    </form>
  )
}

const HoldTable = ({ users }: { users: readonly UserHolds[] }): ReactNode => (
  <TableBox label="Table of holds">
    <table>
      <thead>
        <tr>
          <th scope="col">User</th>
          <th scope="col" className="number">
            Balance
          </th>
          <th scope="col" className="number">
            Lent
          </th>
          <th scope="col" className="number">
            Pending
          </th>
          <th scope="col" className="number">
            Calls
          </th>
          <th scope="col">Leases</th>
        </tr>
      </thead>
      <tbody>
        {users.map((user) => (
          <tr key={`${user.clientId} ${user.externalUserId}`}>
            <th scope="row">
              {user.externalUserId}
              <small className="soft">{user.clientId}</small>
            </th>
            <td className="number">
              <Attos value={user.balanceUsdAttos} />
            </td>
            <td className="number">
              <Attos value={user.lentUsdAttos} />
            </td>
            <td className="number">
              <Attos value={user.pendingUsdAttos} />
            </td>
            <td className="number">{formatInteger(user.pendingCount)}</td>
            <td>
              {user.leases.map((lease) => (
                <div key={lease.id}>
                  <Attos value={lease.usedUsdAttos} /> of <Attos value={lease.amountUsdAttos} /> at{' '}
                  {lease.sidecarId}, until <Instant at={lease.endsAt} />
                  {lease.recalled && <span className="badge warn">recalled</span>}
                </div>
              ))}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
