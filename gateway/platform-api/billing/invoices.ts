import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, nullable, oneOf, required, text } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/billing/invoices'
const tags = ['billing']

const InvoiceParams = Type.Object({
  ...AppParams.properties,
  invoiceId: Type.String({ description: 'The id of the invoice or credit note.' }),
})

const InvoiceLine = named(
  Type.Object({
    id: Type.String(),
    name: Type.String(),
    kind: oneOf(
      ['subscription', 'usage', 'overage', 'proration', 'other'],
      'other: late usage, corrections, estimates of losses, fees and returned payments.',
    ),
    totalAmount: Type.String({
      description:
        'Dollars, rounded to micros so that lines and carried amounts add up to the total.',
    }),
    totalUsdExact: Type.String({ description: 'The same, exact.' }),
    periodStart: Instant('Of a usage line: the first ticket.'),
    periodEnd: Instant('Of a usage line: the last ticket.'),
    planId: nullable({}),
    pipeline: nullable({}),
    modelId: nullable({}),
    chargedClientId: nullable({
      description: "On an owner's invoice: the app whose tickets were charged.",
    }),
    tickets: nullable({ description: 'Number of tickets.' }),
    units: nullable({ description: 'Of overage: units beyond the included ones.' }),
  }),
  'InvoiceLine',
)

const statuses = ['issued', 'payment_processing', 'overdue', 'paid', 'uncollectible', 'void']
const types = ['standard', 'credit_note']

const summary = {
  id: Type.String(),
  number: Type.String({ description: 'Without gaps for each issuer, such as INV-000012.' }),
  invoiceType: oneOf(types, 'Credit notes have numbers of their own.'),
  status: oneOf(
    statuses,
    'overdue: a payment failed and is tried again. uncollectible: the last try failed.',
  ),
  currency: oneOf(['USD'], 'Always USD.'),
  totalAmount: Type.String({ description: 'Dollars; negative for a credit note.' }),
  customerId: Type.String({ description: 'Our id of the user.' }),
  customerKey: Type.String({ description: "The app's id of the user." }),
  issuerName: Type.String(),
  issuerClientId: Type.String({ description: 'The app that issued it.' }),
  issuedAt: Instant('When it was issued.'),
  periodStart: Instant('The period of the user at that time.'),
  periodEnd: Instant('The last millisecond of the period.'),
  reason: oneOf(
    ['threshold', 'ceiling', 'period', 'final', 'request', 'plan', 'void', 'refund', 'credit'],
    'Why it was issued.',
  ),
  creditedAmount: Type.String({ description: 'Dollars of its credit notes.' }),
  paidAt: nullable({ format: 'date-time' }),
  invoiceId: nullable({ description: 'Of a credit note: the invoice that it corrects.' }),
  note: nullable({ description: "Of a credit note: the reason in the author's words." }),
  plane: oneOf(['live', 'test'], "The payment processor's plane."),
  hostedInvoiceUrl: nullable({
    format: 'uri',
    description:
      'A page for the payer that needs no login. Null for members who may not see all lines.',
  }),
}

const CreditNoteSummary = named(
  Type.Object({
    id: Type.String(),
    number: Type.String({ description: 'Such as CN-000003.' }),
    issuedAt: Instant('When it was issued.'),
    totalAmount: Type.String({ description: 'Dollars; negative.' }),
    reason: oneOf(['void', 'refund', 'credit'], 'Why it was issued.'),
    note: nullable({ description: "The reason in the author's words." }),
  }),
  'CreditNoteSummary',
)

const InvoiceSummary = named(Type.Object(summary), 'InvoiceSummary')

const Invoice = named(
  Type.Object({
    ...summary,
    carriedInAmount: Type.String({ description: 'Dollars from earlier documents.' }),
    carriedAmount: Type.String({
      description: 'Dollars left to the next document, as a deduction.',
    }),
    lines: Type.Array(ref(InvoiceLine)),
    creditNotes: Type.Array(ref(CreditNoteSummary), {
      description: 'Of an invoice: its credit notes, newest first, at most 100.',
    }),
    invoiceNumber: nullable({
      description: 'Of a credit note: the number of the invoice that it corrects.',
    }),
  }),
  'Invoice',
)

const InvoicePage = named(
  Type.Object({
    items: Type.Array(ref(InvoiceSummary)),
    page: Type.Integer(),
    pageSize: Type.Integer(),
    totalCount: Type.Integer({ description: 'Number of documents on all pages.' }),
  }),
  'InvoicePage',
)

/** Invoices and credit notes (docs/invoices.md). */
export function invoiceRoutes(app: App): void {
  addSchemas(app, [InvoiceLine, CreditNoteSummary, InvoiceSummary, Invoice, InvoicePage])
  listInvoices(app)
  readInvoice(app)
  voidInvoice(app)
  createCreditNote(app)
}

const pageNumber = (description: string) =>
  Type.Optional(Type.String({ pattern: '^[1-9][0-9]{0,8}$', description }))

const pagesQuery = {
  page: pageNumber('a whole number from 1; 1 when absent. At most 10000 is used.'),
  pageSize: pageNumber('a whole number from 1; 20 when absent. At most 100 is used.'),
}

const listInvoices = get({
  url,
  guard: { kind: 'hidden_member_read' },
  operationId: 'listInvoices',
  summary: 'Invoices and credit notes, newest first',
  description:
    "Lists the invoices that the app issued to its users in billing mode merchant, otherwise those of the app's owner. Without a session the answer is 404.",
  tags,
  params: AppParams,
  querystring: Type.Object({
    ...pagesQuery,
    externalUserId: Type.Optional(text('Only of this user, among those that the app issued.')),
    payer: Type.Optional(
      oneOf(['users', 'owner'], 'Whose invoices; by default as the billing mode says.'),
    ),
    status: Type.Optional(
      oneOf(statuses, 'Only documents with this status. Credit notes are issued.'),
    ),
    invoiceType: Type.Optional(oneOf(types, 'Only invoices, or only credit notes.')),
  }),
  response: { 200: ref(InvoicePage) },
  self: {
    operationId: 'listInvoicesOfMe',
    summary: 'Your invoices and credit notes, newest first',
    description:
      'Lists the documents that the app issued to you. hostedInvoiceUrl is the page to print.',
    params: AppParams,
    querystring: Type.Object(pagesQuery),
  },
  handler: async ({ params, query: { page, pageSize, ...query }, core }) => {
    const numbers = { page: Number(page ?? 0), pageSize: Number(pageSize ?? 0) }
    return core.invoices.listInvoices({ ...params, ...query, ...numbers })
  },
})

const readInvoice = get({
  url: `${url}/:invoiceId`,
  guard: { kind: 'hidden_member_read' },
  operationId: 'getInvoice',
  summary: 'An invoice or a credit note with its lines',
  description:
    "Returns a document that the app issued, or one of its owner. Lines and carried amounts add up to the total. Members who are not the owner do not see the names of the owner's other apps. Without a session the answer is 404.",
  tags,
  params: InvoiceParams,
  response: { 200: ref(Invoice) },
  handler: async ({ params, core }) => {
    const { invoice } = await core.invoices.getInvoice(params)
    return requireField(invoice, 'invoice')
  },
})

const reason = required('Why, for the payer to read; at most 500 characters.')

const voidInvoice = post({
  url: `${url}/:invoiceId/void`,
  guard: { kind: 'member_edit' },
  refuses: ['CONFLICT'],
  operationId: 'voidInvoice',
  summary: 'Void an unpaid invoice',
  description:
    'Issues a credit note over the whole invoice: nothing of it is owed any more. Only for invoices that the app issued. Returns 409 for an invoice that is paid or void, and while a payment of it runs.',
  tags,
  params: InvoiceParams,
  body: Type.Object({ reason }, { additionalProperties: false }),
  response: { 200: ref(Invoice) },
  handler: async ({ params, body, core }) => {
    const { invoice } = await core.invoices.voidInvoice({ ...params, ...body })
    return requireField(invoice, 'invoice')
  },
})

const createCreditNote = post({
  url: `${url}/:invoiceId/credit-notes`,
  guard: { kind: 'member_edit' },
  amounts: ['amountUsd'],
  refuses: ['CONFLICT'],
  operationId: 'createCreditNote',
  summary: 'Credit a part of a paid invoice',
  description:
    "Issues a credit note, which the user's next invoice takes off. Refund the payment to return money to the card. Only for invoices that the app issued. Returns 409 for more than is left of the invoice. Send an Idempotency-Key, so that a repeated request credits once.",
  tags,
  params: InvoiceParams,
  headers: IdempotencyHeader,
  body: Type.Object(
    { amountUsd: required('dollars with at most two decimals, such as "12.50"'), reason },
    { additionalProperties: false },
  ),
  response: { 200: ref(Invoice) },
  handler: async ({ params, headers, body, core }) => {
    const { creditNote } = await core.invoices.createCreditNote({
      ...params,
      ...body,
      idempotencyKey: headers['idempotency-key'],
    })
    return requireField(creditNote, 'creditNote')
  },
})
