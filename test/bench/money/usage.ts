import { monthRange } from '../../support/usage/history.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count } from '../table.ts'

/**
 * Compares month totals by user for an app with many tickets and one with a hundredth of them. The
 * users and hours are the same, so only the tickets per hour differ.
 */
export async function usageMonth(bench: Bench): Promise<Finding[]> {
  const rounds = bench.quick ? 10 : 30
  const { core, large, small } = await bench.history()
  const time = async ({ appId, tickets }: { appId: typeof large.appId; tickets: number }) => {
    const started = performance.now()
    const { totals, rows } = await core.usage.query(appId, {
      ...monthRange,
      groupBy: 'user',
      gatewayRequestId: undefined,
      includeRetail: false,
    })
    const took = performance.now() - started
    if (totals.requests !== BigInt(tickets) || rows.length !== large.users)
      throw new Error(`the month has ${totals.requests} tickets of ${rows.length} users`)
    return took
  }
  const [many, few]: [number[], number[]] = [[], []]
  for (let round = -3; round < rounds; round++) {
    const [ofMany, ofFew] = [await time(large), await time(small)]
    // The first rounds warm up code and pages.
    if (round < 0) continue
    many.push(ofMany)
    few.push(ofFew)
  }
  return [
    {
      name: 'usage-month, by user, many by few tickets',
      unit: '',
      target: { atMost: 2 },
      ...pairedRatio(many, few),
      detail:
        `${median(many).toFixed(1)} ms over ${count(large.tickets)}, ${median(few).toFixed(1)} ms over ${count(small.tickets)}; ` +
        `${large.users} users at ${count(large.hours)} hours in both`,
    },
  ]
}
