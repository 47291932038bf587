import { type ReactNode, useState } from 'react'
import { type Payer, type Wallet, usePayerChanges } from '../api/money.ts'
import { Micros } from '../ui/amount.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Failure } from '../ui/states.tsx'

interface AccountProps {
  readonly payer: Payer
  readonly wallet: Wallet
  readonly canEdit: boolean
}

const looks = {
  active: 'badge good',
  overage: 'badge warn',
  at_risk: 'badge warn',
  blocked: 'badge bad',
} as const

/** What a payer has and owes, in words and figures, and what can be done about it. */
export function Account({ payer, wallet, canEdit }: AccountProps): ReactNode {
  const { status, explain, reason } = wallet.billingState
  return (
    <section className="card" aria-labelledby="account">
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
      {canEdit && <Changes payer={payer} wallet={wallet} />}
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

function Changes({ payer, wallet }: { payer: Payer; wallet: Wallet }): ReactNode {
  const [amount, setAmount] = useState('25')
  const [isAsked, setAsked] = useState(false)
  const { topUp, addCard, collect, renewKey } = usePayerChanges(payer)
  const close = (): void => setAsked(false)
  const leave = (url: string): void => location.assign(url)
  const error = topUp.error ?? addCard.error
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
        <Button type="submit" kind="main" disabled={topUp.isPending || topUp.isSuccess}>
          {topUp.isPending || topUp.isSuccess ? 'Opening the page …' : 'Pay'}
        </Button>
        <Button
          onClick={() => addCard.mutate(undefined, { onSuccess: leave })}
          disabled={addCard.isPending || addCard.isSuccess}
        >
          {wallet.paymentMethod.hasDefault === true ? 'Change the card' : 'Put a card on file'}
        </Button>
        <Button onClick={() => setAsked(true)} disabled={collect.isPending}>
          Collect now
        </Button>
      </form>
      {error && <Failure error={error} />}
      {isAsked && (
        <Confirm
          title="Collect what is owed now?"
          effect="An invoice is issued for what is on none yet, and the card on file is charged, also for invoices that are unpaid."
          action="Collect"
          isBusy={collect.isPending}
          error={collect.error}
          onConfirm={() => collect.mutate(undefined, { onSuccess: close })}
          onClose={close}
        />
      )}
      {collect.data && (
        <p role="status">{collect.data.reason ?? 'Queued: it is collected within seconds.'}</p>
      )}
    </>
  )
}
