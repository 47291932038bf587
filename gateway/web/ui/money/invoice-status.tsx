import type { ReactNode } from 'react'
import type { Schemas } from '../../api/client.ts'

type Status = Schemas['InvoiceSummary']['status']

const looks: Readonly<Record<Status, readonly [text: string, className: string]>> = {
  issued: ['issued', 'badge'],
  payment_processing: ['payment processing', 'badge warn'],
  overdue: ['overdue', 'badge bad'],
  paid: ['paid', 'badge good'],
  uncollectible: ['uncollectible', 'badge bad'],
  void: ['void', 'badge'],
}

export const InvoiceStatus = ({ status }: { status: Status }): ReactNode => {
  const [text, className] = looks[status]
  return <span className={className}>{text}</span>
}

export const statusNames: Readonly<Record<Status, string>> = {
  issued: looks.issued[0],
  payment_processing: looks.payment_processing[0],
  overdue: looks.overdue[0],
  paid: looks.paid[0],
  uncollectible: looks.uncollectible[0],
  void: looks.void[0],
}

/** Why a document was issued. */
export const reasonNames: Readonly<Record<Schemas['InvoiceSummary']['reason'], string>> = {
  threshold: 'threshold of the plan',
  ceiling: 'ceiling of unpaid usage',
  period: 'end of the period',
  final: 'deactivation of the user',
  request: 'collection by hand',
  plan: 'price of a plan',
  void: 'voided invoice',
  refund: 'refund',
  credit: 'credit',
}
