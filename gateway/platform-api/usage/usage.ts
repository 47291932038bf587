import { Type } from 'typebox'
import { present } from '../../core/client.ts'
import type { App } from '../../http/listener.ts'
import { AppParams, required, text } from '../request-schemas.ts'
import { route } from '../../http/route.ts'
import { Balance, oneOf, ref } from '../schemas.ts'
import { Usage } from './schemas.ts'
import { toBalance, toUsage } from './reply.ts'

const tags = ['usage']
const groupings = [
  'none',
  'user',
  'pipeline_model',
  'daily_pipeline',
  'manifest',
  'session',
  'day',
] as const

export const dateQuery = {
  startDate: Type.Optional(text('ISO 8601, inclusive')),
  endDate: Type.Optional(text('ISO 8601; a date alone means the end of that UTC day')),
}

export const usageQuery = {
  ...dateQuery,
  groupBy: Type.Optional(oneOf(groupings, 'Which rows stand beside the totals.')),
  include: Type.Optional(oneOf(['retail'], 'retail adds what end users are billed.')),
  includeRetail: Type.Optional(oneOf(['1', 'true', '0', 'false'], 'The same as include=retail.')),
  gatewayRequestId: Type.Optional(
    required('Only the tickets of this gateway request, with the tickets themselves.'),
  ),
}

const UsageQuery = Type.Object({
  ...usageQuery,
  userId: Type.Optional(
    text('an endUserId or an externalUserId; required with groupBy=daily_pipeline'),
  ),
})
export const asOf = Type.Optional(
  text(
    'ISO 8601 instant: the balance as it stood then, by the time that grants and charges were booked; not in the future',
  ),
)
const BalanceQuery = Type.Object({ externalUserId: required('Whose balance.'), asOf })

interface Retail {
  include?: string
  includeRetail?: string
}

/** What core is asked of a query of usage. */
export const toQuery = <Query extends Retail>({ include, includeRetail, ...query }: Query) => ({
  ...query,
  includeRetail: include === 'retail' || includeRetail === '1' || includeRetail === 'true',
})

/** Usage and balances for an app's backend, at their own address and at the deprecated one. */
export function usageRoutes(app: App): void {
  for (const base of ['/api/v1/builder/apps/:clientId/usage', '/api/v1/apps/:clientId/usage']) {
    usageAt(app, base)
    balanceAt(app, base)
  }
}

const rules = (base: string, path: string) =>
  ({
    guard: { kind: 'm2m_basic' },
    metered: true,
    ...(base.startsWith('/api/v1/builder/')
      ? {}
      : { successor: `/api/v1/builder/apps/:clientId/${path}` }),
  }) as const

function usageAt(app: App, base: string): void {
  app.get(
    base,
    route(rules(base, 'usage'), {
      summary: 'Aggregated usage of the app',
      tags,
      params: AppParams,
      querystring: UsageQuery,
      response: { 200: ref(Usage) },
    }),
    async ({ params, query, core }) => {
      const { usage } = await core.usage.query({ ...params, ...toQuery(query) })
      return toUsage(present(usage, 'usage'), query)
    },
  )
}

function balanceAt(app: App, base: string): void {
  app.get(
    `${base}/balance`,
    route(rules(base, 'usage/balance'), {
      summary: "A user's balance",
      tags,
      params: AppParams,
      querystring: BalanceQuery,
      response: { 200: ref(Balance) },
    }),
    async ({ params, query, core }) => {
      const { balance } = await core.allowances.balance({ ...params, ...query })
      return toBalance(present(balance, 'balance'))
    },
  )
}
