import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'

type Status = Schemas['InvoiceSummary']['status']

const looks: Readonly<Record<Status, readonly [text: string, className: string]>> = {
  issued: ['issued', 'badge'],
  payment_processing: ['payment processing', 'badge warn'],
  overdue: ['overdue', 'badge bad'],
  paid: ['paid', 'badge good'],
  uncollectible: ['uncollectible', 'badge bad'],
  void: ['void', 'badge'],
}

export const StatusBadge = ({ status }: { status: Status }): ReactNode => {
  const [text, className] = looks[status]
  return <span className={className}>{text}</span>
}
