import { Link } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { useInvoiceChanges } from '../api/money.ts'
import { useIdempotencyKey } from '../api/submission.ts'
import { formatMicros, parseDollars, toDollarText } from '../ui/amounts.ts'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Failure } from '../ui/states.tsx'

interface CorrectionsProps {
  readonly invoice: Schemas['Invoice']
}

type Changes = ReturnType<typeof useInvoiceChanges>

/** What can be corrected of an invoice that the app issued: an unpaid one whole, a paid one in part. */
export function Corrections({ invoice }: CorrectionsProps): ReactNode {
  const { status, invoiceType, issuerClientId, id } = invoice
  const changes = useInvoiceChanges(issuerClientId, id)
  // A refusal stays when somebody else has changed the invoice, so that nothing is offered any more.
  const refusal = changes.voidIt.error ?? changes.credit.error
  const { data: note } = changes.credit
  if (invoiceType === 'credit_note' || (status === 'void' && !refusal)) return null
  return (
    <section className="card" aria-labelledby="correct">
      <h2 id="correct">Correct this invoice</h2>
      <Offer invoice={invoice} changes={changes} />
      {refusal && <Failure error={refusal} />}
      {note && <Issued note={note} />}
    </section>
  )
}

function Offer({ invoice, changes }: CorrectionsProps & { changes: Changes }): ReactNode {
  const left = leftMicros(invoice)
  switch (invoice.status) {
    case 'void':
      return null
    case 'payment_processing':
      return (
        <p className="soft">
          A payment of it is not decided. It can be voided once that has failed, and credited once
          that has succeeded.
        </p>
      )
    case 'paid':
      return left > 0n ? (
        <Credit invoice={invoice} left={left} credit={changes.credit} />
      ) : (
        <p className="soft">Nothing of it is left to credit.</p>
      )
    default:
      return <Void invoice={invoice} voidIt={changes.voidIt} />
  }
}

const Issued = ({ note }: { note: Schemas['Invoice'] }): ReactNode => (
  <p role="status">
    Issued{' '}
    <Link
      to="/$clientId/invoices/$invoiceId"
      params={{ clientId: note.issuerClientId, invoiceId: note.id }}
    >
      {note.number}
    </Link>
    .
  </p>
)

/** What is not credited yet. */
const leftMicros = ({ totalAmount, creditedAmount }: Schemas['Invoice']): bigint =>
  BigInt(parseDollars(totalAmount, 0n) ?? 0) - BigInt(parseDollars(creditedAmount, 0n) ?? 0)

interface ReasonProps {
  readonly reason: string
  readonly onChange: (reason: string) => void
}

const Reason = ({ reason, onChange }: ReasonProps): ReactNode => (
  <label>
    Reason, for the payer to read
    <input
      required
      maxLength={500}
      value={reason}
      onChange={(event) => onChange(event.target.value)}
    />
  </label>
)

type VoidProps = CorrectionsProps & Pick<Changes, 'voidIt'>

function Void({ invoice: { number }, voidIt }: VoidProps): ReactNode {
  const [reason, setReason] = useState('')
  const [isAsked, setAsked] = useState(false)
  const close = (): void => setAsked(false)
  return (
    <>
      <p>
        It is not paid, so it can be voided: a credit note over the whole amount is issued, and the
        user owes nothing for it.
      </p>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault()
          voidIt.reset()
          setAsked(true)
        }}
      >
        <Reason reason={reason} onChange={setReason} />
        <div className="row">
          <Button type="submit" kind="danger" disabled={reason.trim() === ''}>
            Void the invoice
          </Button>
        </div>
      </form>
      {isAsked && (
        <Confirm
          title={`Void ${number}?`}
          effect="What is on it is not owed any more, and is on no later invoice. This cannot be undone."
          action="Void"
          typed={number}
          isBusy={voidIt.isPending}
          error={null}
          onConfirm={() => voidIt.mutate(reason.trim(), { onSettled: close })}
          onClose={close}
        />
      )}
    </>
  )
}

const microsPerCent = 10_000n

/** Returns whole cents of at most `left` as the route reads them; null for any other text. */
function parseCredit(text: string, left: bigint): string | null {
  const micros = parseDollars(text, microsPerCent)
  if (micros === null || BigInt(micros) % microsPerCent !== 0n || BigInt(micros) > left) return null
  return toDollarText(micros)
}

type CreditProps = CorrectionsProps & Pick<Changes, 'credit'> & { readonly left: bigint }

function Credit({ invoice: { number }, left, credit }: CreditProps): ReactNode {
  const [dollars, setDollars] = useState('')
  const [reason, setReason] = useState('')
  const [isAsked, setAsked] = useState(false)
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const amountUsd = parseCredit(dollars, left)
  const close = (): void => setAsked(false)
  /** Another content is another credit note, so that it needs another key. */
  const edit = (change: () => void): void => {
    change()
    renewKey()
  }
  const limit = `At most ${formatMicros(left.toString())}, in whole cents.`
  return (
    <>
      <p>
        It is paid, so a part of it can be credited: the user’s next invoice takes the amount off.
        To return money to the card, refund the payment at the processor.
      </p>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault()
          credit.reset()
          setAsked(true)
        }}
      >
        <label>
          Amount in dollars
          <input
            required
            inputMode="decimal"
            autoComplete="off"
            maxLength={20}
            aria-describedby="credit-limit"
            value={dollars}
            onChange={(event) => edit(() => setDollars(event.target.value))}
          />
        </label>
        <p className="soft" id="credit-limit">
          {limit}
        </p>
        <Reason reason={reason} onChange={(text) => edit(() => setReason(text))} />
        <div className="row">
          <Button type="submit" disabled={amountUsd === null || reason.trim() === ''}>
            Make a credit note
          </Button>
        </div>
      </form>
      {isAsked && amountUsd !== null && (
        <Confirm
          title={`Credit $${amountUsd} of ${number}?`}
          effect="The credit note is issued at once, and the next invoice of the user is lower by it. This cannot be undone."
          action="Credit"
          typed={amountUsd}
          isBusy={credit.isPending}
          error={null}
          onConfirm={() =>
            credit.mutate(
              { amountUsd, reason: reason.trim(), idempotencyKey },
              { onSuccess: () => edit(() => setDollars('')), onSettled: close },
            )
          }
          onClose={close}
        />
      )}
    </>
  )
}
