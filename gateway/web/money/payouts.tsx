import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { type Payout, payoutsQuery, processorBalanceQuery } from '../api/money.ts'
import { formatCurrency } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant, Period } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

interface PayoutsProps {
  readonly clientId: string
}

/** The owner's balance at the payment processor, and its payouts. */
export function Payouts({ clientId }: PayoutsProps): ReactNode {
  const balance = useQuery(processorBalanceQuery(clientId))
  return (
    <section className="card" aria-labelledby="payouts">
      <h2 id="payouts">Balance and payouts</h2>
      <Answer query={balance} rows={2}>
        {(data) => <Balance balance={data} />}
      </Answer>
      <PayoutList clientId={clientId} />
    </section>
  )
}

const Balance = ({ balance }: { balance: Schemas['ProcessorBalance'] }): ReactNode => (
  <>
    <dl className="facts">
      {balance.balances.map(({ currency, available, pending }) => (
        <div key={currency}>
          <dt>Held in {currency}</dt>
          <dd>
            {formatCurrency(available, currency)} available, {formatCurrency(pending, currency)}{' '}
            pending
          </dd>
        </div>
      ))}
    </dl>
    {balance.balances.length === 0 && <p>The processor holds nothing for this app.</p>}
    <p className="soft">
      As the processor reported it at <Instant at={balance.asOf} isTimeOnly />.
    </p>
  </>
)

function PayoutList({ clientId }: PayoutsProps): ReactNode {
  const payouts = useInfiniteQuery(payoutsQuery(clientId))
  return (
    <>
      <Answer query={payouts}>
        {({ pages }) => {
          const all = pages.flatMap((page) => page.payouts)
          return all.length > 0 ? (
            <PayoutTable payouts={all} />
          ) : (
            <Empty>Nothing paid out yet.</Empty>
          )
        }}
      </Answer>
      <More query={payouts} label="Show older" isManual />
    </>
  )
}

const statusNames: Readonly<Record<Payout['status'], string>> = {
  pending: 'pending',
  in_transit: 'in transit',
  paid: 'paid',
  failed: 'failed',
  canceled: 'canceled',
}

const looks: Readonly<Record<Payout['status'], string>> = {
  pending: 'badge',
  in_transit: 'badge',
  paid: 'badge good',
  failed: 'badge bad',
  canceled: 'badge warn',
}

const PayoutTable = ({ payouts }: { payouts: readonly Payout[] }): ReactNode => (
  <TableBox label="Table of payouts">
    <table>
      <thead>
        <tr>
          <th scope="col">At the bank</th>
          <th scope="col">Payout</th>
          <th scope="col">Made</th>
          <th scope="col">Status</th>
          <th scope="col" className="number">
            Amount
          </th>
        </tr>
      </thead>
      <tbody>
        {payouts.map(({ id, arrivalDate, createdAt, status, failure, amount, currency }) => (
          <tr key={id}>
            <td>
              <Period from={arrivalDate} to={arrivalDate} />
            </td>
            <th scope="row">
              <code>{id}</code>
            </th>
            <td>
              <Instant at={createdAt} />
            </td>
            <td>
              <span className={looks[status]}>{statusNames[status]}</span>
              {failure !== null && <small className="soft"> {failure}</small>}
            </td>
            <td className="number">{formatCurrency(amount, currency)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
