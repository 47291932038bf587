import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant, Micros, Wei, text } from '../schemas.ts'
import { operateRules, operateUrl } from './rules.ts'

const count = (description: string) => Type.String({ pattern: '^[0-9]+$', description })

const totals = Type.Object({
  sessionCount: count('Sessions with lost tickets.'),
  lostCount: count('Tickets that the signer signed but never reported.'),
  estimatedUsdMicros: Micros('Their cost by the mean of each session, rounded up.'),
  forkedCount: count('Tickets that repeat a number of their session.'),
  lateCount: count('Tickets that arrived more than 15 minutes after signing.'),
})
const calls = Type.Object({
  authorisedCount: count('Allowed calls.'),
  ticketedCount: count('Allowed calls whose ticket arrived.'),
  lostCount: count('Signed calls without a ticket that were written off.'),
  lostUsdMicros: Micros('Their highest possible cost.'),
  chargedCount: count('The same, charged as an estimate.'),
  chargedUsdMicros: Micros('What was charged.'),
  releasedCount: count('Allowed calls without a ticket or proof of signing.'),
  releasedUsdMicros: Micros('Their highest possible cost.'),
})
const LossReport = named(
  Type.Object({
    period: Type.Object({
      start: Type.Optional(Instant('Earliest start of the sessions.')),
      end: Type.Optional(Instant('Latest start of the sessions.')),
    }),
    totals,
    calls: Type.Optional(calls),
    apps: Type.Array(
      Type.Object({
        clientId: Type.Optional(Type.String({ description: 'Absent for a deleted app.' })),
        totals,
        calls: Type.Optional(calls),
      }),
      { description: 'The highest loss first.' },
    ),
    unattributedEvents: count('Events in quarantine that name no known user.'),
    unattributedFeeWei: Wei('Their cost, where it can be read.'),
  }),
  'LossReport',
)

/** What was signed and never reported, over all apps. */
export function lossReportRoutes(app: App): void {
  addSchemas(app, [LossReport])
  getLossReport(app)
}

const getLossReport = get({
  ...operateRules,
  url: `${operateUrl}/losses`,
  operationId: 'getLossReport',
  summary: 'What was signed and never reported, by app',
  description: 'Returns the losses of the sessions that started in the period, 30 days by default.',
  querystring: Type.Object({
    startDate: Type.Optional(text('from this instant, ISO 8601')),
    endDate: Type.Optional(text('to this instant')),
  }),
  response: { 200: ref(LossReport) },
  handler: async ({ query, core }) => {
    const report = await core.losses.getLossReport(query)
    return {
      ...report,
      period: requireField(report.period, 'period'),
      totals: requireField(report.totals, 'totals'),
      apps: report.apps.map((app) => ({ ...app, totals: requireField(app.totals, 'totals') })),
    }
  },
})
