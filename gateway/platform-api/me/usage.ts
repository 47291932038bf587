import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { ref } from '../../http/schemas.ts'
import { AppParams } from '../schemas.ts'
import { Balance, toBalance } from '../usage/balance.ts'
import { historyQuery, sendOwnHistory } from '../usage/history.ts'
import { toQuery, usageQuery } from '../usage/query.ts'
import { Usage, UsageHistory } from '../usage/schemas.ts'
import { toUsage } from '../usage/usage.ts'
import { SubscriptionRead, toRead } from '../users/subscriptions.ts'
import { ownRules, ownUrl } from './rules.ts'

/** What a person has spent in an app, and what is left. */
export function ownUsageRoutes(app: App): void {
  readUsage(app)
  listCalls(app)
  readBalance(app)
  readSubscription(app)
}

const readUsage = get({
  ...ownRules,
  url: `${ownUrl}/usage`,
  metered: true,
  operationId: 'getUsageOfMe',
  summary: 'What you have used',
  description:
    'Returns your totals of a range of time and the rows of the grouping groupBy. include=retail adds the amounts that you are billed.',
  params: AppParams,
  querystring: Type.Object(usageQuery),
  response: { 200: ref(Usage) },
  handler: async ({ query, core }) => {
    const { usage } = await core.usage.queryOwnUsage(toQuery(query))
    return toUsage(requireField(usage, 'usage'), query)
  },
})

const listCalls = get({
  ...ownRules,
  url: `${ownUrl}/usage/requests`,
  metered: true,
  operationId: 'listRequestsOfMe',
  summary: 'Your calls with their prices, newest first',
  description:
    'Lists your tickets or, with groupBy=session, your signer sessions, in pages of at most 50; without dates those of the current UTC month.',
  params: AppParams,
  querystring: Type.Object(historyQuery),
  response: { 200: ref(UsageHistory) },
  handler: async ({ query, core }, reply) => sendOwnHistory({ query, core }, reply),
})

const readBalance = get({
  ...ownRules,
  url: `${ownUrl}/usage/balance`,
  metered: true,
  operationId: 'getBalanceOfMe',
  summary: 'What you may still spend',
  description: 'Returns what you may still spend in the app.',
  params: AppParams,
  response: { 200: ref(Balance) },
  handler: async ({ core }) => {
    const { balance } = await core.allowances.getOwnBalance({})
    return toBalance(requireField(balance, 'balance'))
  },
})

const readSubscription = get({
  ...ownRules,
  url: `${ownUrl}/subscription`,
  operationId: 'getSubscriptionOfMe',
  summary: 'Your plan',
  description: 'Returns your plan in the app, what it includes, and when its period ends.',
  params: AppParams,
  response: { 200: ref(SubscriptionRead) },
  handler: async ({ params, core }) => {
    const { state } = await core.subscriptions.getSubscription(params)
    return toRead(requireField(state, 'state'))
  },
})
