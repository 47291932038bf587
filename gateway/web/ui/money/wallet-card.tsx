import type { ReactNode } from 'react'
import type { Wallet } from '../../api/money.ts'
import { Micros } from '../amount.tsx'
import { Instant } from '../instant.tsx'

interface WalletCardProps {
  readonly wallet: Wallet
  /** Whether the payer comes back from the processor's page, which has not reported yet. */
  readonly isAwaited: boolean
  /** What the payer can do about it. */
  readonly children: ReactNode
}

const looks = {
  active: 'badge good',
  overage: 'badge warn',
  at_risk: 'badge warn',
  blocked: 'badge bad',
} as const

/** What a payer has and owes, in words and figures. */
export function WalletCard({ wallet, isAwaited, children }: WalletCardProps): ReactNode {
  const { status, explain, reason } = wallet.billingState
  return (
    <section className="card" aria-labelledby="account">
      {isAwaited && (
        <p className="notice" role="status">
          Thank you. What you paid or changed shows here as soon as the processor has reported it,
          usually within a minute.
        </p>
      )}
      <h2 id="account">
        {explain.headline} <span className={looks[status]}>{status.replace('_', ' ')}</span>
      </h2>
      <p>{explain.detail}</p>
      {reason !== null && (
        <p className="notice">
          Calls are refused with <a href={`/errors/${reason}`}>{reason}</a>.
        </p>
      )}
      <Figures wallet={wallet} />
      {children}
    </section>
  )
}

function Figures({ wallet }: { wallet: Wallet }): ReactNode {
  const { funding, collection } = wallet.billingState
  const { includedUsage, overage } = funding
  const amounts = [
    ['Prepaid credit', funding.prepaid],
    ['Included usage left', includedUsage.remaining],
    ['May be spent', funding.spendable],
    ['Not yet invoiced', overage.unbilledDebt],
    ['Ceiling of unpaid usage', overage.ceiling],
  ] as const
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
        <dd>
          <Card card={wallet.paymentMethod} />
        </dd>
      </div>
      <div>
        <dt>Included usage renews</dt>
        <dd>
          <Instant at={includedUsage.resetsAt} />
        </dd>
      </div>
      <div>
        <dt>Next invoice</dt>
        <dd>
          {collection.nextRaiseEligibleAt === null ? (
            <None />
          ) : (
            <Instant at={collection.nextRaiseEligibleAt} />
          )}
        </dd>
      </div>
    </dl>
  )
}

const None = (): ReactNode => <span className="soft">none</span>

const Card = ({ card: { hasDefault, brand, last4 } }: { card: Wallet['paymentMethod'] }) => {
  if (hasDefault === null) return <span className="soft">unknown now</span>
  return hasDefault ? `${brand ?? 'card'} …${last4 ?? ''}` : <None />
}
