import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import {
  ownInvoicesQuery,
  ownPayingQuery,
  ownTransactionsQuery,
  ownWalletQuery,
  useOwnPayments,
} from '../api/me.ts'
import { Dollars, Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Empty, Failure } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

interface AppProps {
  readonly clientId: string
}

/** The person's money in an app whose users pay: card, credit, transactions, invoices. */
export function Payments({ clientId }: AppProps): ReactNode {
  const paying = useQuery(ownPayingQuery(clientId))
  return (
    <Answer query={paying} rows={6}>
      {({ billingMode, chargesEnabled }) =>
        billingMode === 'merchant' ? (
          <>
            <Account clientId={clientId} canPay={chargesEnabled} />
            <Invoices clientId={clientId} />
            <Transactions clientId={clientId} />
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

type Wallet = Schemas['Wallet']

function Account({ clientId, canPay }: AppProps & { canPay: boolean }): ReactNode {
  const { paid } = useSearch({ from: '/me/$ownAppId' })
  const [since] = useState(() => (paid === true ? Date.now() : null))
  const wallet = useQuery(ownWalletQuery(clientId, since))
  return (
    <Answer query={wallet} rows={6}>
      {(data) => (
        <section className="card" aria-labelledby="account">
          {since !== null && (
            <p className="notice" role="status">
              Thank you. The payment shows here as soon as the processor has reported it, usually
              within a minute.
            </p>
          )}
          <h2 id="account">{data.billingState.explain.headline}</h2>
          <p>{data.billingState.explain.detail}</p>
          <Figures wallet={data} />
          {canPay ? (
            <Pay clientId={clientId} wallet={data} />
          ) : (
            <p className="notice">This app cannot take payments now.</p>
          )}
        </section>
      )}
    </Answer>
  )
}

const None = (): ReactNode => <span className="soft">none</span>

function Figures({ wallet }: { wallet: Wallet }): ReactNode {
  const { funding } = wallet.billingState
  const amounts = [
    ['Prepaid credit', funding.prepaid],
    ['Included usage left', funding.includedUsage.remaining],
    ['Not yet invoiced', funding.overage.unbilledDebt],
  ] as const
  const { hasDefault, brand, last4 } = wallet.paymentMethod
  return (
    <dl className="facts">
      {amounts.map(([name, amount]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{amount ? <Micros value={amount.usdMicros} /> : <None />}</dd>
        </div>
      ))}
      <div>
        <dt>Card on file</dt>
        <dd>{hasDefault === true ? `${brand ?? 'card'} …${last4 ?? ''}` : <None />}</dd>
      </div>
    </dl>
  )
}

function Pay({ clientId, wallet }: AppProps & { wallet: Wallet }): ReactNode {
  const [amount, setAmount] = useState('25')
  const { topUp, addCard, renewKey } = useOwnPayments(clientId)
  const leave = (url: string): void => location.assign(url)
  const error = topUp.error ?? addCard.error
  const isLeaving = topUp.isPending || topUp.isSuccess
  return (
    <>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          topUp.mutate(amount.trim(), { onSuccess: leave })
        }}
      >
        <label>
          Top up, in dollars
          <input
            inputMode="decimal"
            required
            maxLength={20}
            value={amount}
            onChange={(event) => {
              setAmount(event.target.value)
              renewKey()
            }}
          />
        </label>
        <Button type="submit" kind="main" disabled={isLeaving}>
          {isLeaving ? 'Opening the page …' : 'Pay'}
        </Button>
        <Button
          onClick={() => addCard.mutate(undefined, { onSuccess: leave })}
          disabled={addCard.isPending || addCard.isSuccess}
        >
          {wallet.paymentMethod.hasDefault === true ? 'Change the card' : 'Put a card on file'}
        </Button>
      </form>
      {error && <Failure error={error} />}
    </>
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
            <InvoiceTable invoices={all} />
          ) : (
            <Empty>No invoice was issued to you.</Empty>
          )
        }}
      </Answer>
      <More query={invoices} label="Show older" />
    </section>
  )
}

const InvoiceTable = ({
  invoices,
}: {
  invoices: readonly Schemas['InvoiceSummary'][]
}): ReactNode => (
  <TableBox label="Table of my invoices">
    <table>
      <thead>
        <tr>
          <th scope="col">Number</th>
          <th scope="col">Issued</th>
          <th scope="col">Status</th>
          <th scope="col" className="number">
            Total
          </th>
        </tr>
      </thead>
      <tbody>
        {invoices.map(({ id, number, issuedAt, status, totalAmount, hostedInvoiceUrl }) => (
          <tr key={id}>
            <th scope="row">
              {hostedInvoiceUrl === null ? number : <a href={hostedInvoiceUrl}>{number}</a>}
            </th>
            <td>
              <Instant at={issuedAt} />
            </td>
            <td>{status.replace('_', ' ')}</td>
            <td className="number">
              <Dollars value={totalAmount} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

function Transactions({ clientId }: AppProps): ReactNode {
  const transactions = useInfiniteQuery(ownTransactionsQuery(clientId))
  return (
    <section className="card" aria-labelledby="transactions">
      <h2 id="transactions">My transactions</h2>
      <Answer query={transactions}>
        {({ pages }) => {
          const all = pages.flatMap(({ items }) => items)
          return all.length > 0 ? <TransactionTable items={all} /> : <Empty>None yet.</Empty>
        }}
      </Answer>
      <More query={transactions} label="Show older" />
    </section>
  )
}

const TransactionTable = ({
  items,
}: {
  items: readonly Schemas['WalletTransaction'][]
}): ReactNode => (
  <TableBox label="Table of my transactions">
    <table>
      <thead>
        <tr>
          <th scope="col">When</th>
          <th scope="col">What</th>
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
              <small>{item.type.replaceAll('_', ' ')}</small>
            </th>
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
