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
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { LongTable } from '../ui/table/long-table.tsx'

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
            return users.length > 0 ? (
              <HoldTable users={users} hasMore={holds.hasNextPage} />
            ) : (
              <Empty>Nothing is held.</Empty>
            )
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

const columns = [
  { name: 'User' },
  { name: 'Balance', isNumber: true },
  { name: 'Lent', isNumber: true },
  { name: 'Pending', isNumber: true },
  { name: 'Calls', isNumber: true },
  { name: 'Leases' },
]

interface HoldTableProps {
  readonly users: readonly UserHolds[]
  readonly hasMore: boolean
}

const HoldTable = ({ users, hasMore }: HoldTableProps): ReactNode => (
  <LongTable
    label="Table of holds"
    columns={columns}
    pages={[users]}
    hasMore={hasMore}
    keyOf={userOf}
  >
    {(user) => (
      <>
        <th scope="row">
          <Name>{user.externalUserId}</Name>
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
      </>
    )}
  </LongTable>
)

const userOf = ({ clientId, externalUserId }: UserHolds): string => `${clientId} ${externalUserId}`
