import { createLedger } from '../../../core/balances/ledger/ledger.ts'
import { createCuts } from '../../../core/billing/cuts.ts'
import { sumByDay } from '../../../core/billing/summary/store.ts'
import { createSummary } from '../../../core/billing/summary/summary.ts'
import { createPool } from '../../../core/lib/sql.ts'
import { type Habit, generateHistory, month } from '../../support/usage/history.ts'
import { wireCore } from '../core.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count } from '../table.ts'
import { userName } from '../ingest/tickets.ts'

/** Within the generated month. The period starts and ends in the middle of an hour. */
const now = (): Date => new Date(`${month}-15T12:00:00Z`)
const period = {
  start: new Date(`${month}-01T10:30:00.250Z`),
  end: new Date(`${month}-30T10:30:00.250Z`),
}

/**
 * Compares the billing summary of an app with a million tickets in the month with that of an app
 * with a hundredth of them, in the same hours. Also compares the sums of a period that starts and
 * ends within hours: the tickets of those two hours are read one by one, so the time grows with the
 * tickets of an hour. This has no target, because the number of other tickets read depends on how
 * far the generated rows are out of signing order.
 */
export async function billingSummary(bench: Bench): Promise<Finding[]> {
  const rounds = bench.quick ? 10 : 30
  const url = await (await bench.server()).create()
  const core = wireCore(url)
  bench.defer(core.stop)
  const { pool } = core
  const [large, small] = [await newApp(core, 1_000_000), await newApp(core, 10_000)]
  await generate(url, [large, small])
  const summary = createSummary({
    pool,
    now,
    ledger: createLedger(),
    cuts: createCuts({ pool, now }),
    findOwner: async () => null,
    findOwnerAccount: async () => null,
    resubscribe: async () => {},
  })
  const whole = async (app: Habit): Promise<void> => {
    const { usage } = await summary.read(app.appId)
    if (usage.requests !== BigInt(ticketsOf(app)))
      throw new Error(`the month has ${usage.requests} tickets`)
  }
  const sums = async ({ appId }: Habit): Promise<void> => {
    await sumByDay(pool, appId, period)
  }
  const compare = async (read: (app: Habit) => Promise<void>) => {
    const [many, few]: [number[], number[]] = [[], []]
    // The first rounds warm up code and pages.
    for (let round = -3; round < rounds; round++) {
      const [ofMany, ofFew] = [await time(() => read(large)), await time(() => read(small))]
      if (round < 0) continue
      many.push(ofMany)
      few.push(ofFew)
    }
    return {
      ...pairedRatio(many, few),
      detail: `${median(many).toFixed(1)} ms over ${count(ticketsOf(large))}, ${median(few).toFixed(1)} ms over ${count(ticketsOf(small))}`,
    }
  }
  return [
    {
      name: 'billing-summary, many by few tickets',
      unit: '',
      target: { atMost: 1.5 },
      ...(await compare(whole)),
    },
    {
      name: 'billing-summary, sums of a period within hours',
      unit: '',
      target: null,
      ...(await compare(sums)),
    },
  ]
}

const hours = 720
const ticketsOf = ({ perHour }: Habit): number => hours * perHour

/** Creates an app with one user, who has about `tickets` tickets in the month. */
async function newApp(core: ReturnType<typeof wireCore>, tickets: number): Promise<Habit> {
  const caller = await core.createApp()
  const userId = await core.userId(caller, userName(0))
  return { appId: caller.appId, userId, hours, perHour: Math.ceil(tickets / hours) }
}

async function generate(url: string, apps: readonly Habit[]): Promise<void> {
  const pool = createPool({ url, max: 2, name: 'tollgate-bench', statementTimeoutMs: 0 })
  await generateHistory(pool, apps).finally(() => pool.end())
}

async function time(read: () => Promise<void>): Promise<number> {
  const started = performance.now()
  await read()
  return performance.now() - started
}
