import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { type UserRef, daysQuery, transactionsQuery, usersPayQuery } from '../api/users.ts'
import { Micros } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { TransactionTable } from '../ui/money/transaction-table.tsx'
import { MonthChoice, formatUtcMonth } from '../ui/month-choice.tsx'
import { More } from '../ui/more.tsx'
import { Empty, Loading } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { useAppNow } from '../ui/usage/now.ts'

const from = '/$clientId/users/$externalUserId'

/** Transactions of a user with running balances; while the owner pays, also what each day cost the owner. */
export function Statement({ user }: { user: UserRef }): ReactNode {
  const usersPay = useQuery(usersPayQuery(user.clientId))
  return (
    <Answer query={usersPay} rows={6}>
      {(usersPay) => (
        <>
          <Transactions user={user} />
          {!usersPay && <Charges user={user} />}
        </>
      )}
    </Answer>
  )
}

function Transactions({ user }: { user: UserRef }): ReactNode {
  const transactions = useInfiniteQuery(transactionsQuery(user))
  return (
    <section className="card" aria-labelledby="statement">
      <h2 id="statement">Statement</h2>
      <Answer query={transactions}>
        {({ pages }) =>
          pages.some(({ items }) => items.length > 0) ? (
            <TransactionTable
              clientId={user.clientId}
              pages={pages}
              hasMore={transactions.hasNextPage}
            />
          ) : (
            <Empty>Nothing was booked for this user yet.</Empty>
          )
        }
      </Answer>
      <More query={transactions} label="Show older" isManual />
    </section>
  )
}

function Charges({ user }: { user: UserRef }): ReactNode {
  const now = useAppNow(user.clientId)
  return now === undefined ? (
    <Loading rows={6} />
  ) : (
    <Days user={user} present={formatUtcMonth(now)} />
  )
}

function Days({ user, present }: { user: UserRef; present: string }): ReactNode {
  const { month = present } = useSearch({ from })
  const navigate = useNavigate({ from })
  const days = useQuery(daysQuery(user, month))
  return (
    <section className="card" aria-labelledby="charges">
      <h2 id="charges">Charges by day</h2>
      <div className="row">
        <MonthChoice
          month={month}
          latest={present}
          onChange={(wanted) => void navigate({ search: { part: 'statement', month: wanted } })}
        />
      </div>
      <Answer query={days}>
        {(data) =>
          data.days.length > 0 ? (
            <DayTable {...data} />
          ) : (
            <Empty>The user was charged nothing in this month.</Empty>
          )
        }
      </Answer>
      <p className="soft">
        The app’s owner pays for its users, so charges burn included usage and given credit only.
      </p>
    </section>
  )
}

interface DayTableProps {
  readonly days: NonNullable<Schemas['Usage']['byDay']>
  readonly totals: Schemas['Usage']['totals']
}

const DayTable = ({ days, totals }: DayTableProps): ReactNode => (
  <TableBox label="Table of days">
    <table>
      <caption>UTC days, the newest first. Days without tickets are left out.</caption>
      <thead>
        <tr>
          <th scope="col">Day</th>
          <th scope="col" className="number">
            Tickets
          </th>
          <th scope="col" className="number">
            Network cost
          </th>
          <th scope="col" className="number">
            Charged to the user
          </th>
        </tr>
      </thead>
      <tbody>
        {days.map((day) => (
          <tr key={day.date}>
            <th scope="row">{day.date}</th>
            <Figures row={day} />
          </tr>
        ))}
      </tbody>
      <tfoot>
        <tr>
          <th scope="row">Total</th>
          <Figures row={totals} />
        </tr>
      </tfoot>
    </table>
  </TableBox>
)

interface Row {
  readonly requestCount: number
  readonly networkFeeUsdMicros: string
  readonly endUserBillableUsdMicros?: string
}

const Figures = ({ row }: { row: Row }): ReactNode => (
  <>
    <td className="number">{formatCount(row.requestCount)}</td>
    <td className="number">
      <Micros value={row.networkFeeUsdMicros} />
    </td>
    <td className="number">
      <Micros value={row.endUserBillableUsdMicros ?? '0'} />
    </td>
  </>
)
