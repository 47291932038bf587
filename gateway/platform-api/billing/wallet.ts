import { Type } from 'typebox'
import type { GetWalletResponse } from '../../../proto/gen/es/tollgate/billing/v1/wallet_pb.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import {
  BillingMoney,
  BillingState,
  PaymentMethod,
  toBillingState,
  toPaymentMethod,
} from './state.ts'
import { AppParams, Instant, Micros, WebAddress, nullable, oneOf, text } from '../schemas.ts'
import { payerFields } from './payer.ts'
import { processorReasons, returnUrls } from './processor-page.ts'

const url = '/api/v1/apps/:clientId/billing/wallet'
const tags = ['billing']

const PayerQuery = Type.Object(payerFields)

const PayPerUsePlan = named(
  Type.Object({
    planId: Type.String(),
    planName: Type.String(),
    chargeThresholdUsdMicros: nullable({
      description: 'Null if the plan is charged at the end of each period.',
    }),
    chargeThresholdUsd: nullable({ description: 'The same in dollars.' }),
    resolvedBehavior: Type.String({ description: 'One sentence: when the card is charged.' }),
  }),
  'PayPerUsePlan',
)

const Wallet = named(
  Type.Object({
    clientId: Type.String(),
    billingMode: oneOf(
      ['owner_rollup', 'merchant'],
      "Who pays for the app's usage: the owner, or in merchant mode its users.",
    ),
    payer: Type.String({ description: "The payer's id in its app." }),
    balance: Type.Unsafe<object | null>(
      Type.Object(
        {
          usdMicros: Micros('The remaining money.'),
          usd: Type.String({ description: 'The same in dollars, with at least two decimals.' }),
          lifetimeGrantedUsdMicros: Micros('Included usage, credits and top-ups.'),
          consumedUsdMicros: Micros('Consumed this period.'),
        },
        { nullable: true, description: 'Null if it is unknown.' },
      ),
    ),
    paymentMethod: PaymentMethod,
    autoTopUp: Type.Unsafe<null>({
      type: 'object',
      nullable: true,
      description: 'Always null; existing clients read it.',
    }),
    billingState: ref(BillingState),
    payPerUsePlans: Type.Array(ref(PayPerUsePlan)),
  }),
  'Wallet',
)

const Transaction = named(
  Type.Object({
    id: Type.String(),
    date: Instant('When it was booked.'),
    type: oneOf(
      [
        'credit_purchased',
        'credit_granted',
        'credit_expired',
        'usage',
        'adjustment',
        'refund',
        'invoice',
        'credit_note',
        'payment',
      ],
      'Usage of a UTC day is one transaction where nothing else came between. Invoices, credit notes, payments and their refunds leave the balance unchanged; they settle debt. A top-up is credit_purchased.',
    ),
    description: Type.String(),
    amountUsdMicros: Micros('The amount, never negative.'),
    creditDeltaUsdMicros: Micros('The change of the balance, signed.'),
    balanceUsdMicros: nullable({ description: 'The balance after it; null if it is unknown.' }),
    invoiceId: nullable({ description: 'The invoice that it is, pays or corrects; or null.' }),
  }),
  'WalletTransaction',
)

const Transactions = named(
  Type.Object({
    items: Type.Array(ref(Transaction)),
    nextCursor: Type.Optional(Type.String({ description: 'Absent on the last page.' })),
    degraded: Type.Boolean({
      description:
        'Whether balances are null because a source did not answer. Always false: ledger, invoices and payments are read at once, and the request fails if they cannot be read.',
    }),
  }),
  'WalletTransactions',
)

const TopUp = named(
  Type.Object({
    checkoutUrl: WebAddress('The page on which the payer pays.'),
    sessionId: Type.String({ description: 'Our id of the checkout.' }),
    amountUsdMicros: Micros('The amount of the top-up.'),
  }),
  'TopUp',
)

const Checkout = named(
  Type.Object({
    sessionId: Type.String(),
    purpose: oneOf(['top_up', 'card', 'plan'], 'What the payer does on the page.'),
    status: oneOf(
      ['opening', 'open', 'processing', 'settled', 'failed', 'expired'],
      'settled: paid and credited, or the card is on file.',
    ),
    amountUsdMicros: nullable({ description: 'Null for a card alone.' }),
    problem: nullable({ description: 'Why a paid checkout was not credited.' }),
    createdAt: Instant('When it was opened.'),
  }),
  'Checkout',
)

/** What a payer has, its transactions, and prepaid money (docs/payments.md). */
export function walletRoutes(app: App): void {
  addSchemas(app, [
    BillingMoney,
    BillingState,
    PayPerUsePlan,
    Wallet,
    Transaction,
    Transactions,
    TopUp,
    Checkout,
  ])
  readWallet(app)
  readState(app)
  listTransactions(app)
  createTopUp(app)
  readCheckout(app)
}

const readWallet = get({
  url,
  guard: { kind: 'm2m_or_member' },
  refuses: ['CONFLICT', 'EDIT_FORBIDDEN'],
  operationId: 'getWallet',
  summary: "A payer's balance, card and plans that are paid by use",
  description:
    "Returns what the payer has and how it is charged. The payer is the named user in billing mode merchant, otherwise the app's owner, whom payer=owner names in any mode. Returns 409 for an app that the platform pays for.",
  tags,
  params: AppParams,
  querystring: PayerQuery,
  response: { 200: ref(Wallet) },
  self: {
    operationId: 'getWalletOfMe',
    summary: 'Your balance, card and unpaid usage',
    description:
      'Returns what you have and how you are charged. 409 if the app pays for its users.',
    params: AppParams,
  },
  handler: async ({ params, query, core }) =>
    toWallet(params, await core.wallets.getWallet({ ...params, ...query })),
})

const toWallet = (
  { clientId }: { readonly clientId: string },
  { card, billingState, ...wallet }: GetWalletResponse,
) => ({
  clientId,
  ...wallet,
  billingState: toBillingState(billingState),
  paymentMethod: toPaymentMethod(card),
  autoTopUp: null,
})

const readState = get({
  url: '/api/v1/apps/:clientId/billing/state',
  guard: { kind: 'm2m_or_member' },
  refuses: ['CONFLICT', 'EDIT_FORBIDDEN'],
  operationId: 'getBillingState',
  summary: 'Whether a payer may spend, and why not',
  description:
    "Returns what pays for calls, what is unpaid, how it is collected, and the reason with which calls are refused, with the same codes as the refusals. The payer is the named user in billing mode merchant, otherwise the app's owner, whom payer=owner names in any mode. Null is unknown. The answer is never cached.",
  tags,
  params: AppParams,
  querystring: PayerQuery,
  response: { 200: ref(BillingState) },
  handler: async ({ params, query, core }, reply) => {
    void reply.header('cache-control', 'no-store')
    const { billingState } = await core.wallets.getBillingState({ ...params, ...query })
    return toBillingState(billingState)
  },
})

const transactionsQuery = {
  limit: Type.Optional(
    Type.String({
      pattern: '^([1-9][0-9]?|100)$',
      description: 'a whole number from 1 to 100; 25 when absent',
    }),
  ),
  cursor: Type.Optional(text('nextCursor of the page before, with the same payer')),
}

const listTransactions = get({
  url: `${url}/transactions`,
  guard: { kind: 'm2m_or_member' },
  refuses: ['CONFLICT', 'EDIT_FORBIDDEN'],
  operationId: 'listWalletTransactions',
  summary: "A payer's transactions with running balances, newest first",
  description:
    "Lists credits, usage by day, expiries, corrections, invoices, credit notes, payments and refunds. Each balance is the ledger's own after the transaction.",
  tags,
  params: AppParams,
  querystring: Type.Object({
    ...payerFields,
    payer: Type.Optional(
      oneOf(
        ['owner', 'user'],
        "owner: the app's owner, in any billing mode, for a session of the account that pays for the app; 403 for others, and not together with externalUserId. user: the named user, also while the owner pays.",
      ),
    ),
    ...transactionsQuery,
  }),
  response: { 200: ref(Transactions) },
  self: {
    operationId: 'listTransactionsOfMe',
    summary: 'Your transactions with running balances, newest first',
    description: 'Lists your credits, usage by day, invoices, payments and refunds.',
    params: AppParams,
    querystring: Type.Object(transactionsQuery),
  },
  handler: async ({ params, query: { limit, ...query }, core }) =>
    core.wallets.listWalletTransactions({ ...params, ...query, limit: Number(limit ?? 0) }),
})

const topUpAmount = Type.Unsafe<string | number>({
  description: 'dollars with at most two decimals, from 1 to 10000: "25.00" or 25',
  anyOf: [{ type: 'string', maxLength: 20 }, { type: 'number' }],
})

const createTopUp = post({
  url: `${url}/top-up`,
  guard: { kind: 'm2m_or_editor' },
  amounts: ['amountUsd'],
  refuses: processorReasons,
  operationId: 'createTopUp',
  summary: 'Open the pay page for prepaid money',
  description:
    'Opens the pay page on which the payer buys credit. The credit is given when the payment processor reports the payment, once, whatever happens to the browser. Send an Idempotency-Key, so that a repeated request opens one page.',
  tags,
  params: AppParams,
  headers: IdempotencyHeader,
  body: Type.Object(
    {
      amountUsd: topUpAmount,
      ...payerFields,
      ...returnUrls,
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(TopUp) },
  self: {
    operationId: 'createTopUpOfMe',
    summary: 'Open the pay page for prepaid money',
    description:
      'Opens the pay page on which you buy credit. The credit is given when the payment processor reports the payment. Send an Idempotency-Key, so that a repeated request opens one page.',
    params: AppParams,
    body: Type.Object({ amountUsd: topUpAmount, ...returnUrls }, { additionalProperties: false }),
  },
  handler: async ({ params, headers, body: { amountUsd, ...body }, core }) =>
    core.payments.createTopUp({
      ...params,
      ...body,
      amountUsd: String(amountUsd),
      idempotencyKey: headers['idempotency-key'],
    }),
})

const readCheckout = get({
  url: `${url}/checkouts/:sessionId`,
  guard: { kind: 'm2m_or_member' },
  operationId: 'getCheckout',
  summary: 'What became of a checkout',
  description:
    'Returns the state of a checkout that this app opened. Read it when the payer comes back, instead of trusting the address.',
  tags,
  params: Type.Object({
    ...AppParams.properties,
    sessionId: Type.String({ description: 'sessionId of the answer that opened it.' }),
  }),
  response: { 200: ref(Checkout) },
  handler: async ({ params, core }) => core.payments.getCheckout(params),
})
