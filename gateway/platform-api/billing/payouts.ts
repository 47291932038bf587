import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { get, internalTag } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, nullable, oneOf, text } from '../schemas.ts'

const url = '/api/v1/internal/apps/:clientId/billing'
const tags = [internalTag, 'billing']
const refuses = ['PROCESSOR_NOT_CONFIGURED', 'PROCESSOR_UNREACHABLE', 'PROCESSOR_REFUSED'] as const

const Amount = (description: string) =>
  Type.String({ description: `${description} A decimal of the currency.` })
const account = nullable({
  description: "The processor's id of the app's account; null if the app has none.",
})
const asOf = Instant('When the processor reported it: within the last minute.')
const currency = Type.String({ description: 'ISO code, such as USD.' })

const ProcessorBalance = named(
  Type.Object({
    account,
    balances: Type.Array(
      Type.Object({
        currency,
        available: Amount('Can be paid out; negative if the account owes.'),
        pending: Amount('Taken, but not available yet.'),
      }),
      { description: 'By currency; empty without an account.' },
    ),
    asOf,
  }),
  'ProcessorBalance',
)

const PayoutList = named(
  Type.Object({
    account,
    payouts: Type.Array(
      Type.Object({
        id: Type.String({ description: "The processor's id." }),
        amount: Amount('Negative if the bank was debited.'),
        currency,
        status: oneOf(
          ['pending', 'in_transit', 'paid', 'failed', 'canceled'],
          'pending: not sent to the bank yet. A paid one may still fail within days.',
        ),
        arrivalDate: Type.String({
          format: 'date',
          description: 'The day on which the bank has it, or should have it.',
        }),
        createdAt: Instant('When the processor made it.'),
        failure: nullable({ description: "The processor's code of a failure; or null." }),
      }),
    ),
    asOf,
    nextCursor: Type.Optional(Type.String({ description: 'Absent on the last page.' })),
  }),
  'PayoutList',
)

/** What the payment processor holds for an app and pays out to its owner (docs/processor.md). */
export function payoutRoutes(app: App): void {
  addSchemas(app, [ProcessorBalance, PayoutList])
  getBalance(app)
  listPayouts(app)
}

const getBalance = get({
  url: `${url}/balance`,
  guard: { kind: 'member_read' },
  refuses,
  operationId: 'getProcessorBalance',
  summary: "Balance of the app's account at the payment processor",
  description:
    'Returns what the processor holds for the owner, by currency. Each core asks the processor at most once a minute.',
  tags,
  params: AppParams,
  response: { 200: ref(ProcessorBalance) },
  handler: async ({ params, core }) => {
    const { account, ...answer } = await core.billing.getProcessorBalance(params)
    return { ...answer, account: account ?? null }
  },
})

const listPayouts = get({
  url: `${url}/payouts`,
  guard: { kind: 'member_read' },
  refuses,
  operationId: 'listPayouts',
  summary: 'Payouts to the owner, newest first',
  description:
    "Lists what the processor paid, or will pay, from the app's account to the owner's bank. Each core reads a page at most once a minute.",
  tags,
  params: AppParams,
  querystring: Type.Object({
    limit: Type.Optional(
      Type.String({
        pattern: '^([1-9]|[1-4][0-9]|50)$',
        description: 'a whole number from 1 to 50; 50 when absent',
      }),
    ),
    cursor: Type.Optional(text('nextCursor of the page before')),
  }),
  response: { 200: ref(PayoutList) },
  handler: async ({ params, query: { limit, cursor }, core }) => {
    const page = { limit: Number(limit ?? 0), cursor }
    const { account, payouts, ...answer } = await core.billing.listPayouts({ ...params, ...page })
    return {
      ...answer,
      account: account ?? null,
      payouts: payouts.map((payout) => ({ ...payout, failure: payout.failure ?? null })),
    }
  },
})
