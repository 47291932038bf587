import { Type } from 'typebox'
import { present } from '../core.ts'
import type { App } from '../listener.ts'
import { AppParams, required, text } from '../request-schemas.ts'
import { route } from '../route.ts'
import { Balance, Usage, oneOf, ref } from '../schemas.ts'
import { toBalance, toUsage } from './usage-reply.ts'

const tags = ['usage']

export const usageQuery = {
  startDate: Type.Optional(text('ISO 8601, inclusive')),
  endDate: Type.Optional(text('ISO 8601; a date alone means the end of that UTC day')),
  groupBy: Type.Optional(oneOf(['none', 'user', 'pipeline_model'], 'Which rows stand beside the totals.')),
}

const UsageQuery = Type.Object({
  ...usageQuery,
  userId: Type.Optional(text('an endUserId or an externalUserId')),
})
export const asOf = Type.Optional(text(
  'ISO 8601 instant: the balance as it stood then, by the time that grants and charges were booked; not in the future'))
const BalanceQuery = Type.Object({ externalUserId: required('Whose balance.'), asOf })

/** Usage and balances for an app's backend, at their own address and at the deprecated one. */
export function usageRoutes(app: App): void {
  for (const base of ['/api/v1/builder/apps/:clientId/usage', '/api/v1/apps/:clientId/usage']) {
    usageAt(app, base)
    balanceAt(app, base)
  }
}

const successorOf = (base: string, path: string) =>
  base.startsWith('/api/v1/builder/') ? {} : { successor: `/api/v1/builder/apps/:clientId/${path}` }

function usageAt(app: App, base: string): void {
  app.get(base, route({ guard: { kind: 'm2m_basic' }, ...successorOf(base, 'usage') }, {
    summary: 'Aggregated usage of the app', tags,
    params: AppParams, querystring: UsageQuery, response: { 200: ref(Usage) },
  }), async ({ params, query, core }) => {
    const { usage } = await core.usage.query({ ...params, ...query })
    return toUsage(present(usage, 'usage'), query)
  })
}

function balanceAt(app: App, base: string): void {
  app.get(`${base}/balance`, route({ guard: { kind: 'm2m_basic' }, ...successorOf(base, 'usage/balance') }, {
    summary: "A user's balance", tags,
    params: AppParams, querystring: BalanceQuery, response: { 200: ref(Balance) },
  }), async ({ params, query, core }) => {
    const { balance } = await core.allowances.balance({ ...params, ...query })
    return toBalance(present(balance, 'balance'))
  })
}
