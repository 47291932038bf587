import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count } from '../table.ts'
import { userName } from '../ingest/tickets.ts'

const pairs = 100

/** Reads balances as GetBalance does, alternately for a user with many tickets and one with few. */
export async function balanceRead(bench: Bench): Promise<Finding[]> {
  const rounds = bench.quick ? 10 : 20
  const { core, large: crowd, many, few } = await bench.history()
  const time = async (user: number): Promise<number> => {
    const started = performance.now()
    await core.allowances.balance({ appId: crowd.caller.appId, externalUserId: userName(user) })
    return performance.now() - started
  }
  const [large, small]: [number[], number[]] = [[], []]
  for (let round = -2; round < rounds; round++) {
    const [ofMany, ofFew]: [number[], number[]] = [[], []]
    for (let i = 0; i < pairs; i++) {
      ofMany.push(await time(0))
      ofFew.push(await time(crowd.users - 1))
    }
    // The first rounds warm up the code.
    if (round < 0) continue
    large.push(median(ofMany))
    small.push(median(ofFew))
  }
  return [
    {
      name: 'balance read, many by few tickets',
      unit: '',
      target: { atMost: 1.2 },
      ...pairedRatio(large, small),
      detail: `${median(large).toFixed(2)} ms with ${count(many)} tickets, ${median(small).toFixed(2)} ms with ${count(few)}`,
    },
  ]
}
