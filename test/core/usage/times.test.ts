import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import * as fc from 'fast-check'
import { createUsage, type Usage, type UsageQuery } from '../../../core/usage/service.ts'
import type { UsageReport } from '../../../core/usage/types.ts'
import { createWorld, envelope, recordRate, type World } from '../metering/harness.ts'

/** Sums by hour and by model are compared with sums that the test makes of the tickets. */

let world: World
let usage: Usage
const startMs = Date.parse('2026-04-10T00:00:00Z')
const minuteMs = 60_000
const hourMs = 3_600_000
const spanHours = 60
const models = ['sdxl', 'flux', 'llama', 'whisper', 'wan', 'svd', 'sam', 'unknown']

interface Ticket {
  readonly at: number
  readonly user: string
  readonly pipeline: string
  readonly model: string
  readonly fee: bigint
}

const ticket = fc.record({
  // Many are at the start of an hour or one millisecond before it.
  at: fc
    .tuple(fc.nat(spanHours - 1), fc.constantFrom(0, 1, 1_800_000, hourMs - 1))
    .map(([hour, ms]) => startMs + hour * hourMs + ms),
  user: fc.constantFrom('ann', 'bob'),
  pipeline: fc.constantFrom('image', 'video'),
  model: fc.constantFrom(...models),
  fee: fc.bigInt(1n, 10n ** 15n),
})
const tickets: readonly Ticket[] = fc.sample(ticket, { numRuns: 250, seed: 25 })

beforeAll(async () => {
  world = await createWorld('2026-04-12T13:00:00Z')
  for (let at = startMs; at < startMs + spanHours * hourMs; at += 30 * minuteMs)
    await recordRate(world.pool, new Date(at - minuteMs).toISOString())
  await world.metering({ fixed: false }).ingestEvents(
    tickets.map(({ at, user, pipeline, model, fee }, sequence_number) =>
      envelope({
        auth_id: `${world.app.clientId}:${user}`,
        current_time: new Date(at).toISOString(),
        computed_fee: `${fee}`,
        pipeline: `${pipeline}:${model}`,
        model_id: '',
        session_id: `s${sequence_number}`,
        request_id: `r${sequence_number % 7}`,
        sequence_number,
      }),
    ),
  )
  usage = createUsage({ pool: world.pool, users: world.users, now: () => world.clock.at })
})
afterAll(() => world.stop())

type Query = Partial<UsageQuery>
const ask = (query: Query, of?: string): Promise<UsageReport> =>
  usage.query(
    world.app.id,
    {
      startDate: undefined,
      endDate: undefined,
      groupBy: undefined,
      gatewayRequestId: undefined,
      includeRetail: true,
      ...query,
    },
    of,
  )

const hourOf = (at: number): string => new Date(Math.floor(at / hourMs) * hourMs).toISOString()
const dayOf = (at: number): string => new Date(at).toISOString().slice(0, 10)

/** The tickets of a query, whose dates are both inclusive. */
const selected = ({ startDate = '', endDate = '', pipeline, modelId }: Query, of?: string) =>
  tickets.filter(
    ({ at, user, ...ticket }) =>
      at >= Date.parse(startDate) &&
      at <= Date.parse(endDate) &&
      (of === undefined || user === of) &&
      (pipeline === undefined || ticket.pipeline === pipeline) &&
      (modelId === undefined || ticket.model === modelId),
  )

function sumsBy(of: readonly Ticket[], key: (ticket: Ticket) => string): Record<string, unknown> {
  const sums = new Map<string, { requests: bigint; fee: bigint }>()
  for (const ticket of of) {
    const { requests, fee } = sums.get(key(ticket)) ?? { requests: 0n, fee: 0n }
    sums.set(key(ticket), { requests: requests + 1n, fee: fee + ticket.fee })
  }
  return Object.fromEntries(sums)
}

const shown = (
  { rows }: UsageReport,
  key: (row: UsageReport['rows'][number]) => string,
): Record<string, unknown> =>
  Object.fromEntries(
    rows
      .filter(({ requests }) => requests > 0n)
      .map((row) => [key(row), { requests: row.requests, fee: row.fee }]),
  )

function expectToAddUp({ rows, totals }: UsageReport): void {
  for (const figure of ['requests', 'fee', 'cost', 'micros', 'ownerMicros'] as const)
    expect(rows.reduce((sum, row) => sum + row[figure], 0n)).toBe(totals[figure])
  expect(rows.reduce((sum, row) => sum + (row.billableMicros ?? 0n), 0n)).toBe(
    totals.billableMicros,
  )
}

/** Names the five costliest models of a selection. */
function nameTop(of: readonly Ticket[]): (ticket: Ticket) => string {
  const fees = new Map<string, bigint>()
  const name = ({ pipeline, model }: Ticket): string => `${pipeline} ${model}`
  for (const each of of) fees.set(name(each), (fees.get(name(each)) ?? 0n) + each.fee)
  const top = [...fees].toSorted(([, a], [, b]) => (a < b ? 1 : a > b ? -1 : 0)).slice(0, 5)
  const named = new Set(top.map(([text]) => text))
  return (each) => (named.has(name(each)) ? name(each) : 'other')
}

const minute = fc.nat(spanHours * 60)
const selection = fc.record({
  range: fc.tuple(minute, minute).map((ends) => ends.toSorted((a, b) => a - b)),
  of: fc.constantFrom(undefined, 'ann'),
  pipeline: fc.constantFrom(undefined, 'image'),
  modelId: fc.constantFrom(undefined, undefined, 'sdxl'),
})
const queryOf = ({ range: [from = 0, to = 0], pipeline, modelId }: SelectionOf): Query => ({
  startDate: new Date(startMs + from * minuteMs).toISOString(),
  endDate: new Date(startMs + to * minuteMs).toISOString(),
  pipeline,
  modelId,
})
type SelectionOf = typeof selection extends fc.Arbitrary<infer Value> ? Value : never

describe('usage by hour and by model', () => {
  it('equals the sums of the tickets, of any range, user, pipeline and model', async () => {
    await fc.assert(
      fc.asyncProperty(selection, async (each) => {
        const query = queryOf(each)
        const of = selected(query, each.of)
        const [hours, topHours, topDays, total] = await Promise.all(
          (['hour', 'hourly_top_models', 'daily_top_models', 'none'] as const).map((groupBy) =>
            ask({ ...query, groupBy }, each.of),
          ),
        )
        if (!hours || !topHours || !topDays || !total) throw new Error('reports are missing')
        expect(shown(hours, (row) => row.hour ?? '')).toEqual(sumsBy(of, ({ at }) => hourOf(at)))
        const name = nameTop(of)
        const nameOf = (row: UsageReport['rows'][number]): string =>
          row.pipeline === null ? 'other' : `${row.pipeline} ${row.modelId}`
        expect(shown(topHours, (row) => `${row.hour} ${nameOf(row)}`)).toEqual(
          sumsBy(of, (one) => `${hourOf(one.at)} ${name(one)}`),
        )
        expect(shown(topDays, (row) => `${row.day} ${nameOf(row)}`)).toEqual(
          sumsBy(of, (one) => `${dayOf(one.at)} ${name(one)}`),
        )
        for (const report of [hours, topHours, topDays]) {
          expectToAddUp(report)
          expect(report.totals).toEqual(total.totals)
        }
      }),
      { numRuns: 30, seed: 25 },
    )
  })

  it('shows every hour of the range, by the clock of the app where its end is open', async () => {
    const range = { startDate: '2026-04-09T22:30:00Z', endDate: '2026-04-10T02:10:00Z' }
    const { rows } = await ask({ groupBy: 'hour', ...range })
    expect(rows.map(({ hour }) => hour)).toEqual(
      ['09T22', '09T23', '10T00', '10T01', '10T02'].map((at) => `2026-04-${at}:00:00.000Z`),
    )
    const open = await ask({ groupBy: 'hour' })
    const first = Math.min(...tickets.map(({ at }) => at))
    expect([open.rows[0]?.hour, open.rows.at(-1)?.hour]).toEqual([
      hourOf(first),
      '2026-04-12T13:00:00.000Z',
    ])
  })

  it('selects the tickets of a gateway request by pipeline and model', async () => {
    const query = { gatewayRequestId: 'r3', pipeline: 'image', modelId: 'flux' }
    const of = tickets.filter(
      ({ pipeline, model }, index) => index % 7 === 3 && pipeline === 'image' && model === 'flux',
    )
    const report = await ask({ ...query, groupBy: 'hour' })
    expect(report.events).toHaveLength(of.length)
    expect(shown(report, (row) => row.hour ?? '')).toEqual(sumsBy(of, ({ at }) => hourOf(at)))
  })

  it('returns no usage of an unknown model', async () => {
    expect((await ask({ modelId: 'no such model' })).totals).toMatchObject({ requests: 0n })
  })

  it.each([
    ['hour', '744 hours', ['2026-03-31', '2026-04-01']],
    ['hourly_top_models', '744 hours', ['2026-03-31', '2026-04-01']],
    ['daily_top_models', '366 days', ['2027-03-01', '2027-03-02']],
  ])('rejects a groupBy=%s of more than %s', async (groupBy, most, [longest, tooLong]) => {
    const startDate = '2026-03-01'
    expect(await ask({ groupBy, startDate, endDate: longest })).toMatchObject({ grouping: groupBy })
    const refusal = {
      reason: 'REQUEST_INVALID',
      message: `groupBy=${groupBy} takes at most ${most}; request a shorter range`,
    }
    await expect(ask({ groupBy, startDate, endDate: tooLong })).rejects.toMatchObject(refusal)
    await expect(ask({ groupBy, startDate: '2020-01-01' })).rejects.toMatchObject(refusal)
  })

  it.each(['session', 'manifest'])('rejects a model with groupBy=%s', async (groupBy) => {
    for (const query of [{ pipeline: 'image' }, { modelId: 'sdxl' }])
      await expect(ask({ ...query, groupBy })).rejects.toMatchObject({
        reason: 'REQUEST_INVALID',
        message: `pipeline and modelId do not select rows of groupBy=${groupBy}`,
      })
  })
})
