import { setTimeout as sleep } from 'node:timers/promises'
import type { ProcessorAccount } from '../../../core/billing/processor/port.ts'
import { createPool } from '../../../core/lib/sql.ts'
import { basic, connectCore } from '../../../deploy/cli/client.ts'
import type { Fault } from '../../fakes/stripe/faults.ts'
import { startStripe } from '../../fakes/stripe/stripe.ts'
import type { Random } from '../random.ts'
import { createDatabase } from '../run/postgres.ts'
import { registerSecret } from '../run/secrecy.ts'
import { freePorts, runProcess } from './processes.ts'

export interface MerchantApp {
  readonly clientId: string
  readonly authorization: string
}

export type Merchants = Awaited<ReturnType<typeof startMerchants>>

const coreToken = registerSecret('core-token-of-these-merchants-0123456789')
export const ownerPassword = registerSecret('a long enough password')

export interface MerchantsOptions {
  /** Settings of core. */
  readonly coreEnv?: Readonly<Record<string, string>>
  /** Whether upkeep runs every two seconds, so that clocks of test apps are followed soon. */
  readonly isSwept?: boolean
}

export interface MerchantOptions {
  readonly isTest?: boolean
  readonly ownerEmail?: string
}

const swept = ['test/support/deployment/swept-core.ts']

/** Starts core and gateway as processes, with a Stripe that keeps state and sends webhooks. */
export async function startMerchants({ coreEnv = {}, isSwept = false }: MerchantsOptions = {}) {
  const stops: (() => Promise<unknown>)[] = []
  const database = await createDatabase()
  stops.push(database.drop)
  const sql = createPool({ url: database.url, max: 4, name: 'test', statementTimeoutMs: 60_000 })
  stops.push(() => sql.end())
  let aheadMs = 0
  const stripe = await startStripe({ now: () => new Date(Date.now() + aheadMs) })
  stops.push(stripe.stop)
  const [corePort = 0, platformPort = 0, builderPort = 0, ...admin] = await freePorts(5)
  const platformUrl = `http://127.0.0.1:${platformPort}`
  const shared = {
    CORE_TOKEN: coreToken,
    CORE_TARGET: `127.0.0.1:${corePort}`,
    CORE_PORT: String(corePort),
    PLATFORM_PORT: String(platformPort),
    BUILDER_PORT: String(builderPort),
    PUBLIC_URL: platformUrl,
    RATE_LIMITS: 'off',
  }
  const ofCore = {
    ...shared,
    ...stripe.env,
    CORE_ADMIN_PORT: String(admin[0]),
    DATABASE_URL: database.url,
    RATE_FIXED: '3000',
    KEY_ENCRYPTION_KEY: registerSecret('ab'.repeat(32)),
    SECRET_PEPPERS: `p1:${registerSecret('cd'.repeat(32))}`,
    COLLECTOR: 'off',
    ...coreEnv,
  }
  const core = await runProcess({
    name: 'core',
    ...(isSwept && { program: swept }),
    env: ofCore,
  })
  stops.push(core.stop)
  const gateway = await runProcess({
    name: 'gateway',
    env: { ...shared, GATEWAY_ADMIN_PORT: String(admin[1]) },
  })
  stops.push(gateway.stop)
  const operator = connectCore({ target: shared.CORE_TARGET, token: coreToken, tls: undefined })
  stops.push(async () => operator.close())
  for (const plane of ['live', 'test'] as const)
    for (const isConnect of [false, true])
      stripe.webhooks.add({
        url: `${platformUrl}/webhooks/stripe`,
        secret: stripe.webhookSecrets[plane],
        plane,
        isConnect,
      })

  /** Creates a connected app in billing mode merchant, with users `user-0`, `user-1` and so on. */
  async function newMerchant(
    users: number,
    { isTest = false, ownerEmail = 'owner@example.com' }: MerchantOptions = {},
  ): Promise<{ app: MerchantApp; at: ProcessorAccount }> {
    const created = await operator.apps.createApp({
      name: 'Shop',
      ownerEmail,
      ownerPassword,
      isCustomer: true,
      isTest,
      starterUsdMicros: undefined,
    })
    const { clientId } = created
    await operator.billing.updateBillingSettings({
      clientId,
      billingMode: 'merchant',
      endUserCap: undefined,
      isPlatformOwned: undefined,
      servesEveryApp: undefined,
      platformCutPercent: undefined,
    })
    const app = { clientId, authorization: basic(created.m2mClientId, created.m2mClientSecret) }
    for (let i = 0; i < users; i++)
      await operator.users.upsertUser({
        clientId,
        externalUserId: `user-${i}`,
        email: undefined,
        status: undefined,
        clearEmail: false,
      })
    await operator.billing.connectProcessor({ clientId })
    const { rows } = await sql.query<{ account: string }>(
      'select p.account from processor_accounts p join clients c on c.app_id = p.app_id where c.client_id = $1',
      [clientId],
    )
    const account = rows[0]?.account ?? ''
    stripe.onboard(account)
    await until(async () => {
      const { status } = await operator.billing.getProcessor({ clientId })
      return status === 'connected'
    }, 60_000)
    return { app, at: { plane: isTest ? 'test' : 'live', account } }
  }

  /**
   * Kills and starts core `kills` times, while the work is not done with pauses of up to
   * `pauseMs`. Calls `whileDown` between the kill and the start.
   */
  async function killCore(
    working: { readonly isDone: boolean },
    {
      kills,
      random,
      pauseMs = 3_000,
      whileDown,
    }: {
      readonly kills: number
      readonly random: Random
      readonly pauseMs?: number
      readonly whileDown?: () => Promise<void>
    },
  ): Promise<void> {
    for (let i = 0; i < kills; i++) {
      const until = Date.now() + 500 + random.below(pauseMs - 500)
      while (!working.isDone && Date.now() < until) await sleep(100)
      await core.kill()
      await whileDown?.()
      await core.start()
    }
  }

  let current = core

  /** Stops core and starts one whose clock, like Stripe's, is ahead of the real one. */
  async function moveAhead(ms: number): Promise<void> {
    await current.stop()
    aheadMs = ms
    const env = { ...ofCore, CORE_AHEAD_MS: String(ms) }
    current = await runProcess({ name: 'core', program: swept, env })
    stops.push(current.stop)
  }

  /**
   * Time passes until core has asked the processor about everything that no event has ended. Each
   * round makes all of it due once: if rounds overlapped, core would ask about the same few again
   * and again. Resolves when `isDone`.
   */
  async function settleLate(isDone: () => Promise<boolean>, limitMs: number): Promise<void> {
    const end = Date.now() + limitMs
    const isIdle = async (): Promise<boolean> => {
      const { rows } = await sql.query<{ due: boolean }>(`
        select exists (select 1 from checkouts where ended_at is null and check_at <= now())
          or exists (select 1 from processor_events where handled_at is null and due_at <= now()) as due`)
      return rows[0]?.due === false
    }
    while (!(await isDone())) {
      await sql.query('update checkouts set check_at = now() where ended_at is null')
      await sql.query('update processor_events set due_at = now() where handled_at is null')
      await until(isIdle, end - Date.now())
      await sleep(1_500)
    }
  }

  /** Differences that `tollgate verify` finds. */
  async function differences(): Promise<unknown[]> {
    const found: unknown[] = []
    for await (const event of operator.books.verifyBooks({ clientId: undefined }))
      if (event.difference) found.push(event.difference)
    return found
  }

  async function stop(): Promise<void> {
    for (const step of stops.toReversed()) await step()
  }

  return {
    sql,
    stripe,
    core,
    operator,
    platformUrl,
    coreTarget: shared.CORE_TARGET,
    coreToken,
    newMerchant,
    killCore,
    moveAhead,
    settleLate,
    differences,
    stop,
  }
}

/** Resolves when the condition is true. Processes need longer than `support/waiting.ts` waits. */
export async function until(condition: () => Promise<boolean>, limitMs: number): Promise<void> {
  for (const end = Date.now() + limitMs; !(await condition()); await sleep(100))
    if (Date.now() > end) throw new Error(`never became true: ${condition}`)
}

/** Faults of the processor and of its webhooks, from here to the end; `more` are further kinds. */
export function breakStripe(
  { stripe }: Pick<Merchants, 'stripe'>,
  random: Random,
  more: readonly Fault[] = [],
): void {
  stripe.faults = () =>
    random.chance(0.06)
      ? random.pick([
          { kind: 'reset before' },
          { kind: 'reset after' },
          { kind: 'error after', isStored: true },
          { kind: 'error after', isStored: false },
          { kind: 'refuse', status: 429 },
          { kind: 'late', ms: 200 },
          ...more,
        ] as const)
      : undefined
  stripe.webhooks.plan = () =>
    random.chance(0.15)
      ? { copies: 0 }
      : { copies: random.chance(0.2) ? 2 : 1, delayMs: random.below(600) }
}
