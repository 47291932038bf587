import { Type } from 'typebox'
import type { BilledUsage } from '../../../proto/gen/es/tollgate/billing/v1/billing_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { wantsCsv } from '../../http/headers.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant } from '../schemas.ts'
import { BilledPlan, Overage, usageFields } from './billing.ts'
import { Percent } from './processor.ts'

const { totalFeeWei, totalFeeEth: _, ...dayFields } = usageFields
const StatementDay = named(
  Type.Object({
    date: Type.String({ description: 'YYYY-MM-DD in UTC.' }),
    feeWei: totalFeeWei,
    ...dayFields,
  }),
  'StatementDay',
)
const Statement = named(
  Type.Object({
    clientId: Type.String(),
    month: Type.String({ description: 'YYYY-MM in UTC.' }),
    plan: BilledPlan,
    cycle: Type.Object({
      periodStart: Instant('Included.'),
      periodEnd: Instant('Included: the last millisecond.'),
      usage: Type.Object(usageFields),
      timeline: Type.Array(ref(StatementDay), {
        description: 'Every UTC day of the month, in order. Their figures add up to usage.',
      }),
      overage: Overage,
    }),
    platformCutPercent: Percent("The platform's cut at the end of the month."),
  }),
  'BillingStatement',
)

const StatementParams = Type.Object({
  ...AppParams.properties,
  month: Type.String({ description: 'A past UTC month, YYYY-MM.' }),
})

const columns = [
  'date',
  'requestCount',
  'unpricedCount',
  'feeWei',
  'networkFeeUsdMicros',
  'ownerChargeWei',
  'ownerChargeUsdMicros',
  'platformFeeWei',
  'totalUnits',
] as const
const csvExample = `${columns.join(',')}
2026-02-01,1,0,1000000000000000,3000000,1100000000000000,3300000,100000000000000,26000
total,1,0,1000000000000000,3000000,1100000000000000,3300000,100000000000000,26000
`

/** An app's billing statements of past months. */
export function statementRoutes(app: App): void {
  addSchemas(app, [StatementDay, Statement])
  get({
    url: '/api/v1/apps/:clientId/billing/statements/:month',
    guard: { kind: 'hidden_m2m_or_member' },
    refuses: ['CONFLICT'],
    operationId: 'getBillingStatement',
    summary: 'The statement of a past month',
    description:
      "Returns the figures of the billing summary for a UTC month that has ended, by day: JSON, or CSV with Accept: text/csv. `plan` is the owner's plan at the end of the month. Tickets that arrive late or are priced late change the figures; `unpricedCount` counts those that still wait. Returns 409 for a month that has not ended, 404 for one before the app was created.",
    tags: ['billing'],
    params: StatementParams,
    response: {
      200: Type.Unsafe<object | string>({
        description: 'The statement',
        content: {
          'application/json': { schema: ref(Statement) },
          'text/csv': { schema: { type: 'string' }, example: csvExample },
        },
      }),
    },
    handler: async ({ params, headers, core }, reply) => {
      const { days, ...answer } = await core.billing.getStatement(params)
      const timeline = days.map(({ date, usage }) => toRow(date, requireField(usage, 'usage')))
      void reply.header('vary', 'Origin, Accept')
      if (!wantsCsv(headers.accept))
        return { ...answer, ...params, cycle: { ...answer, timeline, overage: answer } }
      const total = toRow('total', requireField(answer.usage, 'usage'))
      return reply
        .type('text/csv; charset=utf-8')
        .header('content-disposition', `attachment; filename="statement-${params.month}.csv"`)
        .send(toCsv([...timeline, total]))
    },
  })(app)
}

const toRow = (date: string, usage: BilledUsage) => ({
  ...usage,
  date,
  feeWei: usage.totalFeeWei,
})

/**
 * Writes one row per day and one for the totals. Every cell is a date or a number, so no
 * spreadsheet runs a cell as a formula.
 */
function toCsv(rows: ReturnType<typeof toRow>[]): string {
  const lines = rows.map((row) => columns.map((column) => row[column]).join(','))
  return [columns.join(','), ...lines, ''].join('\n')
}
