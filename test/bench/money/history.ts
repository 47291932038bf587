import { createPool } from '../../../core/lib/sql.ts'
import type { AppId } from '../../../core/shared/ids.ts'
import type { M2mCaller } from '../../../core/rpc/callers.ts'
import { type Habit, generateHistory } from '../../support/usage/history.ts'
import { type Wired, wireCore } from '../core.ts'
import type { Bench } from '../row.ts'
import { count } from '../table.ts'
import { userName } from '../ingest/tickets.ts'

export interface Crowd {
  readonly appId: AppId
  readonly caller: M2mCaller
  readonly tickets: number
  readonly users: number
  /** Hours with usage, over all users. */
  readonly hours: number
}

export interface History {
  readonly core: Wired
  /** User 0 has nearly all tickets, the last user a thousand. */
  readonly large: Crowd
  /** The same users and hours, with a hundredth of the tickets. */
  readonly small: Crowd
  readonly many: number
  readonly few: number
}

const monthHours = 720
const others = 200
const otherHours = 100

/** Generates a month of tickets for two apps, without a collector. */
export async function makeHistory(bench: Omit<Bench, 'million' | 'history'>): Promise<History> {
  const total = bench.quick ? 1_000_000 : 10_000_000
  const url = await (await bench.server()).create()
  const core = wireCore(url)
  bench.defer(core.stop)
  bench.say(`generating ${count(total)} tickets`)
  const [large, small] = [await crowd(core, total), await crowd(core, total / 100)]
  const pool = createPool({ url, max: 2, name: 'tollgate-bench', statementTimeoutMs: 0 })
  pool.on('error', () => undefined)
  const started = performance.now()
  await generateHistory(pool, [...large.habits, ...small.habits]).finally(() => pool.end())
  bench.say(`generated in ${((performance.now() - started) / 1000).toFixed(0)} s`)
  return { core, large: large.crowd, small: small.crowd, many: large.most, few: large.least }
}

// Ten of eleven tickets belong to one user. The last of the others has a thousand, or as few as its
// hours allow.
async function crowd(core: Wired, total: number) {
  const caller = await core.createApp()
  const habit = async (user: number, hours: number, perHour: number): Promise<Habit> => ({
    appId: caller.appId,
    userId: await core.userId(caller, userName(user)),
    hours,
    perHour,
  })
  const perHour = Math.max(1, Math.round(total / 10 / (others * otherHours)))
  const habits = [await habit(0, monthHours, Math.ceil(total / monthHours))]
  for (let user = 1; user < others; user++) habits.push(await habit(user, otherHours, perHour))
  habits.push(await habit(others, otherHours, Math.min(perHour, 10)))
  const ticketsOf = (each: Habit | undefined): number => (each ? each.hours * each.perHour : 0)
  return {
    habits,
    most: ticketsOf(habits[0]),
    least: ticketsOf(habits.at(-1)),
    crowd: {
      appId: caller.appId,
      caller,
      users: habits.length,
      tickets: habits.reduce((sum, each) => sum + ticketsOf(each), 0),
      hours: habits.reduce((sum, { hours }) => sum + hours, 0),
    },
  }
}
