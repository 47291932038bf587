import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError } from '../../../proto/errors.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { parseInstant } from '../../lib/time.ts'
import { auditSuccess } from '../../shared/audit.ts'
import { clockMoves, later } from '../../shared/clocks/clocks.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { type ClockEffects, effectsSince, listMoved } from './store.ts'

export interface TestClockDeps extends Pick<Shared, 'pool' | 'log' | 'now'> {
  /**
   * Enter due periods, and expire due credits, of a bounded number of the app's users. Return the
   * number of users.
   */
  readonly ledger: {
    readonly renew: (pool: Pool, at: Date, app: AppId) => Promise<number>
    readonly sweep: (pool: Pool, at: Date, app: AppId) => Promise<number>
  }
  /** Does what is due for the app's subscriptions and plans. */
  readonly settlePlans: (app: AppId) => Promise<void>
  /**
   * Issues and pays the app's due invoices until `end`, a time of `performance.now()`. Returns false
   * if something may be left.
   */
  readonly collect: (app: AppId, end: number) => Promise<boolean>
}

/** Exactly one of the two must be set. */
export interface ClockMove {
  readonly to: string | undefined
  readonly advanceSeconds: number | undefined
}

export interface ClockActor {
  readonly name: string
  readonly correlationId: string
}

export interface TestClock {
  readonly real: Date
  readonly aheadMs: number
}

export interface AdvancedClock {
  readonly clock: TestClock
  readonly from: Date
  readonly to: Date
  readonly effects: ClockEffects
  /** True when something is still due, which upkeep will do. */
  readonly pending: boolean
}

const dayMs = 86_400_000
/** Limit of all moves together. */
export const aheadMaxMs = 731 * dayMs
const stepMaxMs = 366 * dayMs
// Dating a ticket of the app reads all its moves.
const movesMax = 10_000
const answerMs = 15_000
const againMs = 250
const upkeepMs = 20_000
const sweepsMax = 1_000

/** The clocks of test apps (docs/test-clock.md). They only move forwards. */
export function createTestClock({ pool, ledger, settlePlans, collect, log, now }: TestClockDeps) {
  /** Throws CONFLICT unless the app is a test app. */
  async function read(app: AppId): Promise<TestClock> {
    const { aheadMs } = await tx(pool, (db) => lock(db, app))
    return { real: now(), aheadMs }
  }

  /**
   * Moves the clock, then does what has become due. Throws REQUEST_INVALID for a move that is
   * invalid, backwards or too far; CONFLICT when the app is not a test app or was moved too often.
   * Concurrent moves run one after the other.
   */
  async function advance(app: AppId, move: ClockMove, by: ClockActor): Promise<AdvancedClock> {
    const moved = await tx(pool, async (db) => {
      const last = await lock(db, app)
      if (last.count >= movesMax)
        throw new DomainError(
          'CONFLICT',
          `the clock of this app was moved ${movesMax} times, which is the limit; create another test app`,
        )
      const real = now()
      const from = later(real, last.aheadMs)
      const to = targetOf(move, from)
      const aheadMs = to.getTime() - real.getTime()
      requireWithin({ from, to, real })
      const since = new Date(Math.max(real.getTime(), last.sinceMs + 1))
      await clockMoves.insert(db, app, { since, aheadMs })
      await auditSuccess(db, {
        appId: app,
        actor: { name: by.name, context: by },
        action: 'test_clock_advanced',
        details: { from: from.toISOString(), to: to.toISOString() },
        at: real,
      })
      return { from, to, aheadMs, since: real }
    })
    const { from, to, aheadMs, since } = moved
    log.info({ appId: app, from, to }, 'test clock advanced')
    const pending = !(await settledWithin(app, answerMs))
    const effects = await effectsSince(pool, app, { from, to, since })
    return { clock: { real: now(), aheadMs }, from, to, effects, pending }
  }

  async function lock(db: Db, app: AppId) {
    const clock = await clockMoves.lock(db, app)
    if (clock) return clock
    throw new DomainError(
      'CONFLICT',
      'only a test app has a clock; create one with "isTest": true or --test, because an existing app cannot become a test app',
    )
  }

  /** Returns false when it takes longer than `ms`; it then continues in the background. */
  async function settledWithin(app: AppId, ms: number): Promise<boolean> {
    const end = performance.now() + ms
    const settling = settleAll(app, end).catch((error: unknown) => {
      log.warn(
        { err: error, appId: app },
        'work that is due by a test clock failed; upkeep retries it',
      )
      return false
    })
    return Promise.race([settling, sleep(ms, false, { ref: false })])
  }

  /** Does what is due for an app until nothing is: an invoice may wait for another's payment. */
  async function settleAll(app: AppId, end: number): Promise<boolean> {
    while (!(await settle(app, end))) {
      if (performance.now() + againMs > end) return false
      await sleep(againMs)
    }
    return true
  }

  /** Does what is due for an app, until `end`. Returns false when something may be left. */
  async function settle(app: AppId, end: number): Promise<boolean> {
    await settlePlans(app)
    for (const step of [ledger.renew, ledger.sweep])
      for (let i = 0; ; i++) {
        if (performance.now() > end || i === sweepsMax) return false
        if ((await step(pool, now(), app)) === 0) break
      }
    return collect(app, end)
  }

  let lastApp: AppId | null = null

  /**
   * Does what is due for all apps with clocks ahead of real time, for a bounded time. The next call
   * continues after the last app.
   */
  async function upkeep(): Promise<void> {
    const end = performance.now() + upkeepMs
    const apps = await clockMoves.listAhead(pool)
    const start = apps.findIndex((app) => lastApp !== null && app > lastApp)
    const inTurn = start < 0 ? apps : [...apps.slice(start), ...apps.slice(0, start)]
    for (const app of inTurn) {
      if (performance.now() > end) return
      lastApp = app
      // A failure in one app must not block the others.
      await settle(app, end).catch((error: unknown) =>
        log.error({ err: error, appId: app }, 'work that is due by a test clock failed'),
      )
    }
  }

  /** Lists the clocks of all apps that are ahead of real time. */
  const list = async () => ({ real: now(), clocks: await listMoved(pool) })

  return { read, advance, list, upkeep }
}

export type TestClocks = ReturnType<typeof createTestClock>

function targetOf({ to, advanceSeconds }: ClockMove, from: Date): Date {
  if ((to === undefined) === (advanceSeconds === undefined))
    throw new DomainError('REQUEST_INVALID', 'send exactly one of to and advanceSeconds')
  if (advanceSeconds !== undefined) return later(from, advanceSeconds * 1000)
  const target = parseInstant(to ?? '')
  if (target) return target
  throw new DomainError(
    'REQUEST_INVALID',
    'to must be an ISO 8601 instant with a zone, such as 2026-03-01T00:00:00Z',
  )
}

function requireWithin({ from, to, real }: Readonly<Record<'from' | 'to' | 'real', Date>>): void {
  const step = to.getTime() - from.getTime()
  if (step <= 0)
    throw new DomainError(
      'REQUEST_INVALID',
      `a clock only moves forward; this one shows ${from.toISOString()}`,
    )
  if (step > stepMaxMs)
    throw new DomainError('REQUEST_INVALID', 'a clock moves by at most 366 days at once')
  if (to.getTime() - real.getTime() > aheadMaxMs)
    throw new DomainError(
      'REQUEST_INVALID',
      `a clock may be at most two years ahead, until ${later(real, aheadMaxMs).toISOString()}; create another test app`,
    )
}
