import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import {
  ownInvoicesQuery,
  ownPayingQuery,
  ownTransactionsQuery,
  ownWalletQuery,
  useOwnPayments,
} from '../api/me.ts'
import { usePaidSince } from '../api/money.ts'
import { Answer } from '../ui/answer.tsx'
import { InvoiceTable } from '../ui/money/invoice-table.tsx'
import { PayForm } from '../ui/money/pay-form.tsx'
import { TransactionTable } from '../ui/money/transaction-table.tsx'
import { WalletCard } from '../ui/money/wallet-card.tsx'
import { More } from '../ui/more.tsx'
import { Empty } from '../ui/states.tsx'

interface AppProps {
  readonly clientId: string
}

/** The person's money in an app whose users pay: card, credit, transactions, invoices. */
export function Payments({ clientId }: AppProps): ReactNode {
  const paying = useQuery(ownPayingQuery(clientId))
  const since = usePaidSince(useSearch({ from: '/me/$ownAppId' }).paid)
  return (
    <Answer query={paying} rows={6}>
      {({ billingMode, chargesEnabled }) =>
        billingMode === 'merchant' ? (
          <>
            <Account clientId={clientId} canPay={chargesEnabled} since={since} />
            <Invoices clientId={clientId} />
            <Transactions clientId={clientId} since={since} />
          </>
        ) : (
          <section className="card" aria-label="Payer">
            <Empty>The owner of this app pays for your use. You have nothing to pay.</Empty>
          </section>
        )
      }
    </Answer>
  )
}

interface AccountProps extends AppProps {
  readonly canPay: boolean
  /** The time of a payment that is waited for, or null. */
  readonly since: number | null
}

function Account({ clientId, canPay, since }: AccountProps): ReactNode {
  const wallet = useQuery(ownWalletQuery(clientId, since))
  const pages = useOwnPayments(clientId)
  return (
    <Answer query={wallet} rows={6}>
      {(data) => (
        <WalletCard wallet={data} isAwaited={since !== null}>
          {canPay ? (
            <PayForm card={data.paymentMethod} pages={pages} />
          ) : (
            <p className="notice">This app cannot take payments now.</p>
          )}
        </WalletCard>
      )}
    </Answer>
  )
}

function Invoices({ clientId }: AppProps): ReactNode {
  const invoices = useInfiniteQuery(ownInvoicesQuery(clientId))
  return (
    <section className="card" aria-labelledby="invoices">
      <h2 id="invoices">My invoices</h2>
      <Answer query={invoices}>
        {({ pages }) => {
          const all = pages.flatMap(({ items }) => items)
          return all.length > 0 ? (
            <InvoiceTable label="Table of my invoices" invoices={all}>
              {({ number, hostedInvoiceUrl: url }) =>
                url === null ? number : <a href={url}>{number}</a>
              }
            </InvoiceTable>
          ) : (
            <Empty>No invoice was issued to you.</Empty>
          )
        }}
      </Answer>
      <More query={invoices} label="Show older" />
    </section>
  )
}

function Transactions({ clientId, since }: Omit<AccountProps, 'canPay'>): ReactNode {
  const transactions = useInfiniteQuery(ownTransactionsQuery(clientId, since))
  return (
    <section className="card" aria-labelledby="transactions">
      <h2 id="transactions">My transactions</h2>
      <Answer query={transactions}>
        {({ pages }) =>
          pages.some(({ items }) => items.length > 0) ? (
            <TransactionTable pages={pages} hasMore={transactions.hasNextPage} />
          ) : (
            <Empty>None yet.</Empty>
          )
        }
      </Answer>
      <More query={transactions} label="Show older" />
    </section>
  )
}
