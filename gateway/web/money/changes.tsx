import { type ReactNode, useState } from 'react'
import { type Payer, type Wallet, usePayerChanges } from '../api/money.ts'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { PayForm } from '../ui/money/pay-form.tsx'

interface ChangesProps {
  readonly payer: Payer
  readonly wallet: Wallet
}

/** What a member can do about a payer's money: pay, put a card on file, collect. */
export function Changes({ payer, wallet }: ChangesProps): ReactNode {
  const [isAsked, setAsked] = useState(false)
  const { collect, ...pages } = usePayerChanges(payer)
  const close = (): void => setAsked(false)
  return (
    <>
      <PayForm card={wallet.paymentMethod} pages={pages}>
        <Button onClick={() => setAsked(true)} disabled={collect.isPending}>
          Collect now
        </Button>
      </PayForm>
      {isAsked && (
        <Confirm
          title="Collect what is owed now?"
          effect="An invoice is issued for what is on none yet, and the card on file is charged, also for invoices that are unpaid."
          action="Collect"
          typed="collect"
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
