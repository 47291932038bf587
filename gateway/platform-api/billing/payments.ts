import { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import { Type } from 'typebox'
import type { Payment } from '../../../proto/gen/es/tollgate/billing/v1/payments_pb.ts'
import type { App } from '../../http/app.ts'
import { get, internalTag } from '../../http/endpoint.ts'
import { wantsCsv } from '../../http/headers.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, nullable, oneOf, pageQuery, text } from '../schemas.ts'

const states = ['received', 'partly_refunded', 'refunded', 'disputed']
const Dollars = (description: string) =>
  Type.String({ description: `${description} Dollars with two decimals.` })

const PaymentList = named(
  Type.Object({
    payments: Type.Array(
      Type.Object({
        id: Type.String(),
        externalUserId: Type.String({ description: 'The user who paid.' }),
        purpose: oneOf(['top_up', 'plan', 'invoice'], 'What was paid for.'),
        amountUsd: Dollars('As the processor took it.'),
        feeUsd: Dollars("The platform's share of it."),
        refundedUsd: Dollars('What went back.'),
        disputedUsd: Dollars('In disputes that were not won.'),
        state: oneOf(states, 'disputed has precedence over refunds.'),
        plane: oneOf(['live', 'test'], 'The plane of the processor.'),
        processorId: Type.String({ description: "The processor's id of the payment." }),
        invoiceId: nullable({ description: 'The invoice that it paid; or null.' }),
        createdAt: Instant('When it was booked.'),
      }),
    ),
    nextCursor: Type.Optional(Type.String({ description: 'Absent on the last page.' })),
  }),
  'PaymentList',
)

const columns = [
  'createdAt',
  'externalUserId',
  'purpose',
  'amountUsd',
  'feeUsd',
  'refundedUsd',
  'disputedUsd',
  'state',
  'plane',
  'invoiceId',
  'processorId',
  'id',
] as const

const csvExample = `${columns.join(',')}
2026-04-02T10:00:01.250Z,ada,top_up,25.00,0.00,5.00,0.00,partly_refunded,live,,pi_1,019da5c2-6f4e-7c51-9e1b-0d5c1f6a7b82
`

/** Money that an app's users paid (docs/payments.md). */
export function paymentRoutes(app: App): void {
  addSchemas(app, [PaymentList])
  listPayments(app)
}

const csvPage = 500

const listPayments = get({
  url: '/api/v1/internal/apps/:clientId/payments',
  guard: { kind: 'member_read' },
  operationId: 'listPayments',
  summary: "Payments of the app's users, newest first",
  description:
    'Lists what users paid to this app, with what went back since. With Accept: text/csv, returns all payments of the filter as a table; the page parameters do not apply.',
  tags: [internalTag, 'billing'],
  params: AppParams,
  querystring: Type.Object({
    ...pageQuery,
    externalUserId: Type.Optional(text('only this user')),
    state: Type.Optional(oneOf(states, 'only payments in this state')),
    since: Type.Optional(text('an ISO 8601 instant or day: only payments at or after it')),
    until: Type.Optional(text('an ISO 8601 instant or day: only payments before it')),
  }),
  response: {
    200: Type.Unsafe<object | string>({
      description: 'The payments',
      content: {
        'application/json': { schema: ref(PaymentList) },
        'text/csv': { schema: { type: 'string' }, example: csvExample },
      },
    }),
  },
  handler: async ({ params, query: { limit, cursor, ...filter }, headers, core }, reply) => {
    void reply.header('vary', 'Origin, Accept')
    const read = (page: { limit: number; cursor?: string | undefined }) =>
      core.payments.listPayments({ ...params, ...filter, ...page })
    if (!wantsCsv(headers.accept)) {
      const { payments, nextCursor } = await read({ limit: Number(limit ?? 0), cursor })
      return { payments: payments.map(toPayment), nextCursor }
    }
    const readPage = (from?: string) => read({ limit: csvPage, cursor: from })
    return sendCsv(reply, readPage, await readPage())
  },
})

interface PaymentPage {
  readonly payments: readonly Payment[]
  readonly nextCursor?: string | undefined
}

/** Sends the first page, then reads further pages as fast as the client accepts them. */
function sendCsv(
  reply: FastifyReply,
  readPage: (cursor: string) => Promise<PaymentPage>,
  first: PaymentPage,
): FastifyReply {
  async function* lines(): AsyncGenerator<string> {
    yield `${columns.join(',')}\n`
    for (let page = first; ; page = await readPage(page.nextCursor)) {
      if (page.payments.length > 0) yield page.payments.map(toLine).join('')
      if (page.nextCursor === undefined) return
    }
  }
  void reply
    .type('text/csv; charset=utf-8')
    .header('content-disposition', 'attachment; filename="payments.csv"')
    .header('cache-control', 'no-store')
  return reply.send(Readable.from(lines(), { objectMode: false }))
}

const toPayment = (payment: Payment) => ({ ...payment, invoiceId: payment.invoiceId ?? null })

const toLine = (payment: Payment): string =>
  `${columns.map((column) => toCell(payment[column] ?? '')).join(',')}\n`

/** Ids of users are their own text: quoted, and never run as a formula by a spreadsheet. */
function toCell(value: string): string {
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}
