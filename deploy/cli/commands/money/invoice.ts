import { action, createCommand } from '../../command.ts'
import { app, argument, idempotencyKey, integer, required, text } from '../../options.ts'
import { properties, table } from '../../output.ts'
import type {
  CreditNote,
  Invoice,
} from '../../../../proto/gen/ts-proto/tollgate/billing/v1/invoices.ts'

const list = action({
  text: "Lists the invoices and credit notes of an app, the newest first: those that it issued in the billing mode merchant, otherwise its owner's.",
  options: {
    clientId: app,
    externalUserId: text('USER', { flag: 'user', meaning: 'Only of this user.' }),
    payer: text('PAYER', {
      meaning: "users or owner: whose; by default by the app's billing mode.",
    }),
    status: text('STATUS', {
      meaning:
        'Only documents with this status: issued, payment_processing, overdue, paid, uncollectible or void.',
    }),
    invoiceType: text('TYPE', { flag: 'type', meaning: 'Only standard or credit_note.' }),
    page: integer('N', { from: 1, to: 10_000, fallback: 1 }),
    pageSize: integer('N', { from: 1, to: 100, fallback: 20 }),
  },
  read: (core, request) => core.invoices.listInvoices(request),
  lines: ({ items, totalCount }) => [
    ...table(
      items,
      [
        'number',
        ['date', ({ issuedAt }) => issuedAt.slice(0, 19)],
        ['USD', ({ totalAmount }) => totalAmount],
        'status',
        'reason',
        ['user', ({ customerKey }) => customerKey],
        'id',
      ],
      'no invoices',
    ),
    ...(totalCount > items.length ? [`${totalCount} in all`] : []),
  ],
})

const document = { clientId: app, invoiceId: argument('INVOICE') }

function describe(invoice: Invoice | undefined): string[] {
  if (invoice === undefined) return []
  return [
    ...properties([
      ['number', invoice.number],
      ['status', invoice.status],
      ['total', `${invoice.totalAmount} USD`],
      ['credited', `${invoice.creditedAmount} USD`],
      ...(invoice.invoiceNumber === undefined
        ? []
        : [['corrects', invoice.invoiceNumber] as const]),
      ['user', invoice.customerKey],
      ['issued', invoice.issuedAt],
      ['period', `${invoice.periodStart} to ${invoice.periodEnd}`],
      [
        'reason',
        invoice.note === undefined ? invoice.reason : `${invoice.reason}: ${invoice.note}`,
      ],
      ['page', invoice.hostedInvoiceUrl ?? 'none'],
    ]),
    ...table(
      [
        ...invoice.lines,
        { kind: 'carried', name: 'from earlier documents', totalAmount: invoice.carriedInAmount },
        { kind: 'carried', name: 'to the next invoice', totalAmount: invoice.carriedAmount },
      ],
      [['USD', ({ totalAmount }) => totalAmount], 'kind', 'name'],
      'no lines',
    ),
    ...describeNotes(invoice.creditNotes),
  ]
}

const describeNotes = (notes: readonly CreditNote[]): string[] =>
  notes.length === 0
    ? []
    : table(
        notes,
        [
          ['credit note', ({ number }) => number],
          ['date', ({ issuedAt }) => issuedAt.slice(0, 19)],
          ['USD', ({ totalAmount }) => totalAmount],
          ['reason', ({ reason, note }) => (note === undefined ? reason : `${reason}: ${note}`)],
          'id',
        ],
        'no credit notes',
      )

const show = action({
  text: 'Prints an invoice or a credit note with its lines, and the link of its page.',
  options: document,
  read: (core, request) => core.invoices.getInvoice(request),
  lines: (response) => describe(response.invoice),
})

const reason = required('TEXT', { meaning: 'Why, for the payer to read.' })

const voiding = action({
  text: 'Voids an unpaid invoice by a credit note over the whole amount. Nothing of it is owed any more.',
  options: { ...document, reason },
  change: (core, request) => core.invoices.voidInvoice(request),
  lines: (response) => describe(response.invoice),
})

const credit = action({
  text: 'Credits a part of a paid invoice, which the next invoice takes off. To return money to the card, refund the payment.',
  options: {
    ...document,
    amountUsd: required('USD', { flag: 'usd', meaning: 'Dollars to credit.' }),
    reason,
    idempotencyKey: idempotencyKey('credits once'),
  },
  change: (core, request) => core.invoices.createCreditNote(request),
  lines: ({ creditNote }) => describe(creditNote),
})

export const invoice = createCommand('invoice', {
  summary: 'shows, voids and credits invoices',
  examples: [
    './tollgate invoice list --app app_0123456789abcdef01234567',
    './tollgate invoice show 0199b0c2-7c1e-7a42-9f51-d4f1a1b2c3d4 --app app_0123456789abcdef01234567',
    './tollgate invoice void 0199b0c2-7c1e-7a42-9f51-d4f1a1b2c3d4 --app app_0123456789abcdef01234567 --reason "wrong plan"',
    './tollgate invoice credit 0199b0c2-7c1e-7a42-9f51-d4f1a1b2c3d4 --app app_0123456789abcdef01234567 --usd 5.00 --reason outage',
  ],
  actions: { list, show, void: voiding, credit },
})
