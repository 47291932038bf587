import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect } from 'vitest'
import { createLedger } from '../../../core/balances/ledger/ledger.ts'
import { type PlanTerms, freeTerms } from '../../../core/plans/offers/plan.ts'
import { insertPlan } from '../../../core/plans/offers/store.ts'
import { createRaises } from '../../../core/plans/subscriptions/raises.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { type Pool, createPool } from '../../../core/lib/sql.ts'
import { connectCore } from '../../../deploy/cli/client.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { createClocks } from '../../../core/shared/clocks/clocks.ts'
import { type AppId, appId } from '../../../core/shared/ids.ts'
import { type BooksWorld, startBooks, tollgate } from '../books/support.ts'
import { type TestApp, begin, serviceToken } from '../support.ts'

/**
 * Changes of plan with a real ledger: no sequence of actions loses money or enters a period twice.
 */

export const usd = 10n ** 18n
export const clocks = createClocks()
export const ledger = createLedger({ clocks })

/** An app with plans to change between. */
export interface Shop {
  readonly app: TestApp
  readonly id: AppId
  readonly starter: string
  readonly plans: { readonly id: string; version: number }[]
}

export let world: BooksWorld
export let operator: ReturnType<typeof connectCore>
export let shop: Shop
export let starter: string
export let plans: Shop['plans']

/** Registers the hooks of a test file. Files of a worker share this module, so each calls it. */
export function setUpShop(): void {
  beforeAll(async () => {
    world = await startBooks()
    operator = connectCore({ target: world.core.target, token: serviceToken })
    shop = await newShop(world.app)
    ;({ starter, plans } = shop)
  })
  afterAll(async () => {
    operator.close()
    await world.stop()
  })
}

export async function newShop(app: TestApp): Promise<Shop> {
  const [row] = await world.rows(
    'select c.app_id, p.id from clients c join plans p using (app_id) where client_id = $1 and p.is_starter_default',
    [app.clientId],
  )
  const id = appId(row?.['app_id'] ?? '')
  const offers = [
    await newPlan({ billingCycle: 'daily', included: usdAttos(3n * usd) }, id),
    await newPlan({ billingCycle: 'weekly', included: usdAttos(11n * usd) }, id),
    await newPlan({ billingCycle: 'monthly', included: usdAttos(0n) }, id),
  ]
  return { app, id, starter: row?.['id'] ?? '', plans: offers }
}

export async function newPlan(terms: Partial<PlanTerms>, app = shop.id) {
  const id = randomUUID()
  const kind = { status: 'active', isStarterDefault: false, isNetworkDefault: false } as const
  const all = { ...freeTerms, ...terms }
  await insertPlan(world.sql, { appId: app, id, name: id, ...kind }, { terms: all, at: begin })
  return { id, version: 1 }
}

export const newUser = async (): Promise<string> => newUserOf(world.app)

export async function newUserOf({ basic, clientId }: TestApp): Promise<string> {
  const externalUserId = randomUUID()
  await world.as(basic).upsertUser({ clientId, externalUserId })
  return externalUserId
}

export const balance = (externalUserId: string, { basic, clientId } = world.app) =>
  world.as(basic).getBalance({ clientId, externalUserId })

export const ticket = (authId: string, micros: bigint, signedAt: Date) =>
  world.ingest({
    auth_id: authId,
    // 3000 USD per ETH.
    computed_fee: String((micros * 10n ** 12n) / 3_000n),
    current_time: signedAt.toISOString(),
  })

/** Finds users with grants other than the sum of consumed, expired and remaining amounts. */
export const wrongSums = () =>
  world.rows(`
    select b.user_id
    from balances b
    left join lateral (
      select coalesce(sum(amount_attos), 0) as granted, coalesce(sum(remaining_attos), 0) as remaining
      from grants
      where app_id = b.app_id and user_id = b.user_id) g on true
    where b.granted_attos <> g.granted or b.balance_attos <> g.remaining
      or b.granted_attos <> b.consumed_attos - b.overage_attos + b.expired_attos + b.balance_attos`)

/** Finds included usage that an app's users got twice, and periods entered after a later one. */
export const repeats = ({ id }: Shop) =>
  world.rows(
    `select user_id, effective_at
     from grants
     where app_id = $1 and kind = 'included'
     group by user_id, effective_at
     having count(*) > 1
     union all
     select a.user_id, a.starts_at
     from periods a join periods b using (app_id, user_id)
     where app_id = $1 and a.starts_at < b.starts_at and a.entered_at > b.entered_at`,
    [id],
  )

export const expectSums = async (): Promise<void> => expect(await wrongSums()).toEqual([])

export const expectProof = async (): Promise<void> => {
  const { text } = await tollgate('verify')
  expect(text).toContain('the books are right')
}

/**
 * Sets the included usage of Starter as an owner does. The request starts to grant the difference.
 */
export async function setStarter(micros: string): Promise<void> {
  const planJson = JSON.stringify({ includedUsdMicros: micros })
  await operator.plans.updatePlan({ clientId: world.app.clientId, planId: starter, planJson })
}

/** Four pools, which look like four cores to the database. */
export const renewingPools = (connectionString: string): Pool[] =>
  Array.from({ length: 4 }, () => {
    const pool = createPool({
      url: connectionString,
      name: 'renewing',
      max: 1,
      statementTimeoutMs: 30_000,
    })
    pool.on('error', () => {})
    return pool
  })

/**
 * Terminates connections of `renewingPools` during transactions until the work is done. Returns
 * their number.
 */
export async function whileKilling(work: () => Promise<unknown>): Promise<number> {
  let kills = 0
  const over = new AbortController()
  async function kill(): Promise<void> {
    while (!over.signal.aborted && kills <= 12) {
      const { rowCount } = await world.sql.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where application_name = 'renewing' and state <> 'idle' limit 1`,
      )
      kills += rowCount ?? 0
      await new Promise((resolve) => setTimeout(resolve, 3))
    }
  }
  const killing = kill()
  await work()
  over.abort()
  await killing
  return kills
}

export const raisesBy = (pool: Pool): Promise<number> =>
  createRaises({
    pool,
    ledger,
    stopping: new AbortController().signal,
    log: silentLog(),
    clocks,
    now: world.clock.now,
  }).raiseStarters()
