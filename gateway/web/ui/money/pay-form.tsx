import { type ReactNode, useState } from 'react'
import type { PayPages, Wallet } from '../../api/money.ts'
import { Button } from '../button.tsx'
import { Failure } from '../states.tsx'

interface PayFormProps {
  readonly card: Wallet['paymentMethod']
  readonly pages: PayPages
  /** Further acts of the payer. */
  readonly children?: ReactNode
}

const cardActions = { true: 'Change the card', false: 'Put a card on file', null: 'Set the card' }

/** Leads to the processor's page for a payment, and to the one for a card. */
export function PayForm({ card, pages, children }: PayFormProps): ReactNode {
  const [amount, setAmount] = useState('25')
  const { topUp, addCard, renewKey } = pages
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
          {cardActions[`${card.hasDefault}`]}
        </Button>
        {children}
      </form>
      {error && <Failure error={error} />}
    </>
  )
}
