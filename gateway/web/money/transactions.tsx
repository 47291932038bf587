import { useInfiniteQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { type Payer, type Transaction, transactionsQuery } from '../api/money.ts'
import { Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

/** The story of a payer's balance, newest first. */
export function Transactions({ payer }: { payer: Payer }): ReactNode {
  const transactions = useInfiniteQuery(transactionsQuery(payer))
  return (
    <section className="card" aria-labelledby="transactions">
      <h2 id="transactions">Transactions</h2>
      <Answer query={transactions}>
        {({ pages }) => (
          <Rows clientId={payer.clientId} items={pages.flatMap((page) => page.items)} />
        )}
      </Answer>
      <More query={transactions} label="Show older" />
    </section>
  )
}

interface RowsProps {
  readonly clientId: string
  readonly items: readonly Transaction[]
}

const Rows = ({ clientId, items }: RowsProps): ReactNode =>
  items.length === 0 ? (
    <Empty>Nothing was booked yet.</Empty>
  ) : (
    <TableBox label="Table of transactions">
      <table>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">What</th>
            <th scope="col" className="number">
              Amount
            </th>
            <th scope="col" className="number">
              Change
            </th>
            <th scope="col" className="number">
              Balance
            </th>
          </tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <tr key={item.id}>
              <td>
                <Instant at={item.date} />
              </td>
              <th scope="row">
                {item.description}
                <small>
                  {item.type.replaceAll('_', ' ')}
                  {item.invoiceId !== null && (
                    <>
                      {', '}
                      <Link
                        to="/$clientId/invoices/$invoiceId"
                        params={{ clientId, invoiceId: item.invoiceId }}
                      >
                        invoice
                      </Link>
                    </>
                  )}
                </small>
              </th>
              <td className="number">
                <Micros value={item.amountUsdMicros} />
              </td>
              <td className="number">
                <Micros value={item.creditDeltaUsdMicros} />
              </td>
              <td className="number">
                {item.balanceUsdMicros === null ? (
                  'unknown'
                ) : (
                  <Micros value={item.balanceUsdMicros} />
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableBox>
  )
