import { type ReactNode, useState } from 'react'
import { type Processor, useUpdateBillingSettings } from '../api/money.ts'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'

interface WhoPaysProps {
  readonly processor: Processor
  readonly canOwn: boolean
}

const modes = {
  owner_rollup: {
    fact: 'The owner pays for all users, who owe nothing.',
    offer: 'Pay for all users',
    title: 'Pay for all users of this app?',
    effect:
      'From then on the owner pays for what users use, and this app invoices them no more. It can sell no plan with a price. Users keep their credit. It is refused while something of a user or of the owner is unpaid.',
  },
  merchant: {
    fact: 'Users pay this app: each has its own credit, card and invoices.',
    offer: 'Let users pay',
    title: 'Let users pay this app?',
    effect:
      'From then on this app invoices its users for plans and usage, and their payments go to its payment account. What they used until now stays with the owner. A user whose credit is spent needs a card to go on. It is refused while something of the owner is unpaid.',
  },
} as const

/** Shows who pays for users, and lets owners change it. */
export function WhoPays({ processor, canOwn }: WhoPaysProps): ReactNode {
  const { clientId, billingMode, status } = processor
  const [isAsked, setAsked] = useState(false)
  const update = useUpdateBillingSettings(clientId, (billingMode: Processor['billingMode']) => ({
    billingMode,
  }))
  const close = (): void => setAsked(false)
  const other = billingMode === 'merchant' ? 'owner_rollup' : 'merchant'
  return (
    <section className="card" aria-labelledby="who-pays">
      <h2 id="who-pays">Who pays</h2>
      <p>{modes[billingMode].fact}</p>
      {canOwn && (
        <div className="row">
          <Button
            onClick={() => {
              update.reset()
              setAsked(true)
            }}
          >
            {modes[other].offer}
          </Button>
        </div>
      )}
      {isAsked && (
        <Confirm
          title={modes[other].title}
          effect={
            <>
              {modes[other].effect}
              {other === 'merchant' && status !== 'connected' && (
                <> No payment account is connected, so users can pay nothing until one is.</>
              )}
            </>
          }
          action={modes[other].offer}
          isBusy={update.isPending}
          error={update.error}
          onConfirm={() => update.mutate(other, { onSuccess: close })}
          onClose={close}
        />
      )}
    </section>
  )
}
