import { useInfiniteQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { type Payer, transactionsQuery } from '../api/money.ts'
import { Answer } from '../ui/answer.tsx'
import { TransactionTable } from '../ui/money/transaction-table.tsx'
import { More } from '../ui/more.tsx'
import { Empty } from '../ui/states.tsx'

interface TransactionsProps {
  readonly payer: Payer
  /** The time of a payment that is waited for, or null. */
  readonly since: number | null
}

/** The story of a payer's balance, newest first. */
export function Transactions({ payer, since }: TransactionsProps): ReactNode {
  const transactions = useInfiniteQuery(transactionsQuery(payer, since))
  return (
    <section className="card" aria-labelledby="transactions">
      <h2 id="transactions">Transactions</h2>
      <Answer query={transactions}>
        {({ pages }) =>
          pages.some(({ items }) => items.length > 0) ? (
            <TransactionTable
              clientId={payer.clientId}
              pages={pages}
              hasMore={transactions.hasNextPage}
            />
          ) : (
            <Empty>Nothing was booked yet.</Empty>
          )
        }
      </Answer>
      <More query={transactions} label="Show older" isManual />
    </section>
  )
}
