import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createLedger } from '../../core/balances/ledger/ledger.ts'
import { type Pool, createPool, tx } from '../../core/lib/sql.ts'
import { noteDistribution } from '../../core/shared/database/app-groups.ts'
import { type AppId, type UserId, appId, newUserId } from '../../core/shared/ids.ts'
import { chainInserted } from '../core/plans/chain-prices.ts'
import { createPlans } from '../../core/plans/service.ts'
import { connectCore } from '../../deploy/cli/client.ts'
import { tollgate } from '../core/books/support.ts'
import { envelope } from '../core/metering/harness.ts'
import { type Caller, basicOf, createCaller } from '../core/support.ts'
import { createDatabase } from '../support/run/postgres.ts'
import { type RunningProcess, freePorts, runProcess } from '../support/deployment/processes.ts'
import { registerSecret } from '../support/run/secrecy.ts'
import { readSize } from '../support/run/sizes.ts'

/**
 * The periods of many users end at the same instant. Four cores sweep, answer balance requests and
 * take tickets, and each is killed once. Every user must enter the next period exactly once.
 */

const count = readSize('TEST_USERS')
const coreCount = 4
const dayMs = 86_400_000
const chunk = 1_000
/** 0.003 USD, at 3,000 USD for one ETH. */
const feeWei = 10n ** 12n
const costAttos = feeWei * 3_000n
const starterAttos = 5n * 10n ** 18n
/** Cores that sweep every two seconds. */
const program = ['test/support/deployment/swept-core.ts']

const stops: (() => Promise<unknown>)[] = []
const cores: RunningProcess[] = []
const callers: Caller[] = []
const users: UserId[] = []
let pool: Pool
let app: { id: AppId; clientId: string; basic: string }
let endsAt: Date
beforeAll(
  async () => {
    const database = await createDatabase()
    stops.push(database.drop)
    pool = createPool({
      url: database.url,
      max: 4,
      name: 'tollgate-test',
      statementTimeoutMs: 60_000,
    })
    await noteDistribution(pool)
    pool.on('error', () => {})
    stops.push(() => pool.end())
    const token = registerSecret(randomBytes(32).toString('hex'))
    const shared = {
      DATABASE_URL: database.url,
      CORE_TOKEN: token,
      PUBLIC_URL: 'https://svc.example',
      RATE_FIXED: '3000',
      COLLECTOR: 'off',
      LOG_LEVEL: 'info',
      KEY_ENCRYPTION_KEY: registerSecret(randomBytes(32).toString('hex')),
      SECRET_PEPPERS: `p1:${registerSecret(randomBytes(32).toString('hex'))}`,
    }
    const ports = await freePorts(2 * coreCount)
    const startOne = async (index: number): Promise<void> => {
      const [port, admin] = [ports[2 * index], ports[2 * index + 1]]
      const env = { ...shared, CORE_PORT: String(port), CORE_ADMIN_PORT: String(admin) }
      cores[index] = await runProcess({ name: 'core', program, env })
      callers[index] = createCaller(`127.0.0.1:${port}`, token)
    }
    stops.push(async () => {
      for (const caller of callers) caller.close()
      await Promise.all(cores.map((core) => core.stop()))
    })
    await Promise.all(Array.from({ length: coreCount }, (_, index) => startOne(index)))
    vi.stubEnv('CORE_TARGET', `127.0.0.1:${ports[0]}`)
    vi.stubEnv('CORE_TOKEN', token)
    app = await createApp(`127.0.0.1:${ports[0]}`, token)
    endsAt = new Date(Date.now() + 5_000 + 3 * count)
    await subscribeAll(new Date(endsAt.getTime() - dayMs))
  },
  180_000 + 5 * count,
)
afterAll(async () => {
  vi.unstubAllEnvs()
  for (const stop of stops.toReversed()) await stop()
}, 60_000)

/** Creates an app with a Starter plan that has daily periods. */
async function createApp(target: string, token: string) {
  const operator = connectCore({ target, token })
  const created = await operator.apps
    .createApp({
      name: 'renewals',
      ownerEmail: undefined,
      ownerPassword: undefined,
      starterUsdMicros: '5000000',
    })
    .finally(() => operator.close())
  const { rows } = await pool.query<{ app_id: string }>(
    `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos, billing_cycle, created_at)
     select v.app_id, v.plan_id, v.version + 1, v.type, v.price_amount, v.price_currency, v.included_attos, 'daily', '2020-01-01'
     from plan_versions v
     join plans p on p.app_id = v.app_id and p.id = v.plan_id and p.is_starter_default
     join clients c on c.app_id = v.app_id and c.client_id = $1
     returning app_id`,
    [created.clientId],
  )
  await chainInserted(pool)
  const basic = basicOf(created.m2mClientId, registerSecret(created.m2mClientSecret))
  return { id: appId(rows[0]?.app_id ?? ''), clientId: created.clientId, basic }
}

/** Creates the users as if they had subscribed at `at`. */
async function subscribeAll(at: Date): Promise<void> {
  const plans = createPlans({ ledger: createLedger() })
  while (users.length < count) {
    const batch = Array.from({ length: Math.min(chunk, count - users.length) }, newUserId)
    await tx(pool, async (db) => {
      await db.query(
        `insert into end_users (app_id, id, external_user_id, status, created_at, updated_at)
         select $1, id, id::text, 'active', $3, $3 from unnest($2::uuid[]) as id`,
        [app.id, batch, at],
      )
      const keys = batch.map((userId) => ({ appId: app.id, userId }))
      await plans.startOnStarter(db, keys, at)
    })
    users.push(...batch)
  }
  await pool.query('vacuum analyze balances, grants, subscriptions, end_users, periods')
}

const ticketsOf = (user: number): number => (user % 3 === 0 ? 3 : 0)

/** Returns no tickets or three for a user: one signed just before the periods end, two after. */
function eventsOf(user: number): Buffer[] {
  const before = new Date(endsAt.getTime() - 30_000)
  return Array.from({ length: ticketsOf(user) }, (_, turn) => {
    const signedAt = turn === 0 ? before : new Date()
    return envelope({
      auth_id: `${app.clientId}:${users[user]}`,
      session_id: `s-${user}`,
      sequence_number: turn,
      computed_fee: String(feeWei),
      current_time: signedAt.toISOString(),
      current_time_unix: signedAt.getTime(),
    })
  })
}

/** Tries the cores in turn until one answers. */
async function askSomebody<Answer>(
  turn: number,
  ask: (rpcs: ReturnType<Caller['as']>) => Promise<Answer>,
): Promise<Answer> {
  for (let attempt = turn; ; attempt++) {
    const caller = callers[attempt % coreCount]
    if (!caller) throw new Error('no core')
    try {
      return await ask(caller.as(app.basic))
    } catch (error) {
      if (attempt > turn + 600) throw error
      await sleep(100)
    }
  }
}

async function sendTickets(): Promise<void> {
  const perRequest = 30
  for (let from = 0; from < count; from += perRequest) {
    const envelopes = Array.from(
      { length: Math.min(perRequest, count - from) },
      (_, i) => from + i,
    ).flatMap(eventsOf)
    await askSomebody(from / perRequest, (rpcs) => rpcs.ingestEvents({ envelopes }))
    await sleep(pauseMs)
  }
}

// So that reads and tickets last until the sweeps.
const pauseMs = Math.max(5, 10_000 / (count / 30))

/** Reads the balance of every seventh user, from the last to the first. */
async function readBalances(): Promise<void> {
  for (let user = count - 1; user >= 0; user -= 7) {
    const { balance } = await askSomebody(user, (rpcs) =>
      rpcs.getBalance({ clientId: app.clientId, externalUserId: users[user] ?? '' }),
    )
    // A request enters the new period, even before a sweep.
    expect(Number(balance?.remainingUsdMicros)).toBeGreaterThanOrEqual(4_991_000)
    expect(Number(balance?.remainingUsdMicros)).toBeLessThanOrEqual(5_000_000)
    await sleep(pauseMs / 3)
  }
}

async function countLeft(): Promise<number> {
  const { rows } = await pool.query<{ count: bigint }>(
    'select count(*) from balances where app_id = $1 and period_end <= $2',
    [app.id, endsAt],
  )
  return Number(rows[0]?.count)
}

/** Kills one core after another while the periods are entered. */
async function killAll(): Promise<void> {
  const starts: Promise<void>[] = []
  for (const [index, core] of cores.entries()) {
    const left = (count * (coreCount - index)) / (coreCount + 1)
    while ((await countLeft()) > left) await sleep(10)
    await core.kill()
    starts.push(core.start())
  }
  await Promise.all(starts)
}

const rows = async (text: string) =>
  (await pool.query<Record<string, unknown>>(text, [app.id])).rows

describe(`${count} periods that end at once`, () => {
  it(
    'are entered by four cores that are killed, while balances are read and tickets arrive',
    async () => {
      await sleep(Math.max(0, endsAt.getTime() + 50 - Date.now()))
      const started = performance.now()
      await Promise.all([sendTickets(), readBalances(), killAll()])
      const until = Date.now() + 120_000 + count
      while ((await countLeft()) > 0 && Date.now() < until) await sleep(50)
      const seconds = ((performance.now() - started) / 1_000).toFixed(1)
      process.stdout.write(`renewals: ${count} periods, the last after ${seconds} s\n`)
      expect(await countLeft()).toBe(0)
      expect(cores.map((core) => core.crashes())).toEqual([1, 1, 1, 1])
    },
    400_000 + 5 * count,
  )

  it('are entered once, with the included usage once', async () => {
    expect(
      await rows(
        `select p.periods, g.included, g.granted, count(*) as users
         from end_users u
         cross join lateral (
           select count(*) as periods from periods where app_id = $1 and user_id = u.id) p
         cross join lateral (
           select count(*) as included, sum(amount_attos) as granted
           from grants where app_id = $1 and user_id = u.id and kind = 'included') g
         where u.app_id = $1
         group by 1, 2, 3`,
      ),
    ).toEqual([
      { periods: 2n, included: 2n, granted: String(2n * starterAttos), users: BigInt(count) },
    ])
  })

  it('leave every sum exact to the atto-dollar', async () => {
    const payers = Array.from({ length: count }, (_, i) => i).filter((i) => ticketsOf(i) > 0).length
    expect(
      await rows(
        `select consumed_attos as consumed, period_consumed_attos as "ofPeriod", overage_attos as overage, count(*) as users
         from balances where app_id = $1
           and granted_attos = consumed_attos - overage_attos + expired_attos + balance_attos
         group by 1, 2, 3 order by 1`,
      ),
    ).toEqual([
      { consumed: '0', ofPeriod: '0', overage: '0', users: BigInt(count - payers) },
      {
        consumed: String(3n * costAttos),
        ofPeriod: String(2n * costAttos),
        overage: '0',
        users: BigInt(payers),
      },
    ])
  })

  it(
    'pass verify',
    async () => {
      expect((await tollgate('verify')).text).toContain('the books are right')
    },
    120_000 + 20 * count,
  )
})
