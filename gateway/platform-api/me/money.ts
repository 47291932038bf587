import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import { InvoicePage, pageNumber } from '../billing/invoices.ts'
import { CardSetup } from '../billing/payment-method.ts'
import {
  TopUp,
  Transactions,
  Wallet,
  processorReasons,
  returnUrls,
  toWallet,
  topUpAmount,
  transactionsQuery,
} from '../billing/wallet.ts'
import { AppParams, oneOf } from '../schemas.ts'
import { ownRules, ownUrl } from './rules.ts'

const OwnPaying = named(
  Type.Object({
    billingMode: oneOf(
      ['owner_rollup', 'merchant'],
      'merchant: you pay for your use. owner_rollup: the owner of the app pays.',
    ),
    chargesEnabled: Type.Boolean({ description: 'Whether the app can take payments now.' }),
  }),
  'OwnPaying',
)

/** A person's money in an app whose users pay (docs/payments.md). */
export function ownMoneyRoutes(app: App): void {
  addSchemas(app, [OwnPaying])
  readPaying(app)
  readWallet(app)
  listTransactions(app)
  createTopUp(app)
  createCardSetup(app)
  listInvoices(app)
}

const readPaying = get({
  ...ownRules,
  url: `${ownUrl}/billing`,
  operationId: 'getPayingOfMe',
  summary: 'Whether you pay for your use',
  description: 'Returns who pays for your use of the app, and whether the app can take payments.',
  params: AppParams,
  response: { 200: ref(OwnPaying) },
  handler: async ({ params, core }) => {
    const { settings, chargesEnabled } = await core.billing.getProcessor(params)
    return { billingMode: requireField(settings, 'settings').billingMode, chargesEnabled }
  },
})

const readWallet = get({
  ...ownRules,
  url: `${ownUrl}/billing/wallet`,
  refuses: ['CONFLICT'],
  operationId: 'getWalletOfMe',
  summary: 'Your balance, card and unpaid usage',
  description: 'Returns what you have and how you are charged. 409 if the app pays for its users.',
  params: AppParams,
  response: { 200: ref(Wallet) },
  handler: async ({ params, core }) => toWallet(params, await core.wallets.getWallet(params)),
})

const listTransactions = get({
  ...ownRules,
  url: `${ownUrl}/billing/wallet/transactions`,
  refuses: ['CONFLICT'],
  operationId: 'listTransactionsOfMe',
  summary: 'Your transactions with running balances, newest first',
  description: 'Lists your credits, usage by day, invoices, payments and refunds.',
  params: AppParams,
  querystring: Type.Object(transactionsQuery),
  response: { 200: ref(Transactions) },
  handler: async ({ params, query: { limit, cursor }, core }) =>
    core.wallets.listWalletTransactions({ ...params, cursor, limit: Number(limit ?? 0) }),
})

const createTopUp = post({
  ...ownRules,
  url: `${ownUrl}/billing/wallet/top-up`,
  amounts: ['amountUsd'],
  refuses: processorReasons,
  operationId: 'createTopUpOfMe',
  summary: 'Open the pay page for prepaid money',
  description:
    'Opens the pay page on which you buy credit. The credit is given when the payment processor reports the payment. Send an Idempotency-Key, so that a repeated request opens one page.',
  params: AppParams,
  headers: IdempotencyHeader,
  body: Type.Object({ amountUsd: topUpAmount, ...returnUrls }, { additionalProperties: false }),
  response: { 200: ref(TopUp) },
  handler: async ({ params, headers, body: { amountUsd, ...body }, core }) =>
    core.payments.createTopUp({
      ...params,
      ...body,
      amountUsd: String(amountUsd),
      idempotencyKey: headers['idempotency-key'],
    }),
})

const createCardSetup = post({
  ...ownRules,
  url: `${ownUrl}/billing/payment-method`,
  refuses: processorReasons,
  operationId: 'createCardSetupOfMe',
  summary: 'Open the page for a card on file',
  description:
    "Opens the payment processor's page on which you leave a card. Nothing is charged at once.",
  params: AppParams,
  headers: IdempotencyHeader,
  body: Type.Object(returnUrls, { additionalProperties: false }),
  response: { 200: ref(CardSetup) },
  handler: async ({ params, headers, body, core }) =>
    core.payments.createCardSetup({
      ...params,
      ...body,
      idempotencyKey: headers['idempotency-key'],
    }),
})

const listInvoices = get({
  ...ownRules,
  url: `${ownUrl}/billing/invoices`,
  operationId: 'listInvoicesOfMe',
  summary: 'Your invoices and credit notes, newest first',
  description:
    'Lists the documents that the app issued to you. hostedInvoiceUrl is the page to print.',
  params: AppParams,
  querystring: Type.Object({
    page: pageNumber('a whole number from 1; 1 when absent. At most 10000 is used.'),
    pageSize: pageNumber('a whole number from 1; 20 when absent. At most 100 is used.'),
  }),
  response: { 200: ref(InvoicePage) },
  handler: async ({ params, query: { page, pageSize }, core }) =>
    core.invoices.listInvoices({
      ...params,
      page: Number(page ?? 0),
      pageSize: Number(pageSize ?? 0),
    }),
})
