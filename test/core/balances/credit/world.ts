import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, expect } from 'vitest'
import { createLedger } from '../../../../core/balances/ledger/ledger.ts'
import { usdAttos } from '../../../../core/lib/money.ts'
import { tx } from '../../../../core/lib/sql.ts'
import { type TicketCharge, userCharges } from '../../../../core/metering/ingest/charges.ts'
import { createClocks } from '../../../../core/shared/clocks/clocks.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'
import type { CreateGrantRequest } from '../../../../proto/gen/ts-proto/tollgate/balances/v1/allowances.ts'
import {
  type AppOptions,
  type Rpcs,
  type TestApp,
  type TestCore,
  begin,
  day,
  startTestCore,
} from '../../support.ts'

/** A core for a test file. Each test has a new app with the user ada. */

export const micro = 10n ** 12n
export const month = 31 * day
export const quarterHour = day / 96

export let core: TestCore
export let app: TestApp
export let m2m: Rpcs
export const ledger = createLedger({ clocks: createClocks() })

/** Registers the hooks of a test file. Files of a worker share this module, so each calls it. */
export function setUpApp(): void {
  beforeAll(async () => {
    core = await startTestCore()
  })
  afterAll(() => core.stop())
  beforeEach(async () => {
    core.clock.set(begin)
    await openApp()
  })
}

/** Continues with a new app that has these users. */
export async function openApp(options: AppOptions = {}, users = ['ada']): Promise<void> {
  app = await core.newApp(options)
  m2m = core.as(app.basic)
  for (const externalUserId of users)
    await m2m.upsertUser({ clientId: app.clientId, externalUserId })
}

export const grant = (request: Partial<CreateGrantRequest> = {}) =>
  m2m.createGrant({
    clientId: app.clientId,
    externalUserId: 'ada',
    amountUsdMicros: '250000',
    ...request,
  })

export async function allowance(externalUserId = 'ada') {
  const { allowance: read } = await m2m.getAllowance({ clientId: app.clientId, externalUserId })
  if (!read) throw new Error('no allowance in the answer')
  return read
}

export async function balance(externalUserId = 'ada') {
  const { balance: read } = await m2m.getBalance({ clientId: app.clientId, externalUserId })
  if (!read) throw new Error('no balance in the answer')
  return read
}

export async function accountOf(externalUserId = 'ada', clientId = app.clientId) {
  const { rows } = await core.sql.query<{ app_id: string; id: string }>(
    `
    select u.app_id, u.id from end_users u join clients c using (app_id)
    where c.client_id = $1 and u.external_user_id = $2`,
    [clientId, externalUserId],
  )
  const [row] = rows
  if (!row) throw new Error(`no user ${externalUserId}`)
  return { appId: appId(row.app_id), userId: userId(row.id) }
}

export interface Spend {
  readonly micros?: bigint
  readonly attos?: bigint
  readonly signedAt?: Date
  readonly pipeline?: string
  readonly modelId?: string
  readonly of?: string
}

export async function ticket({
  micros = 0n,
  attos = micros * micro,
  signedAt = core.clock.now(),
  pipeline = 'text-to-image',
  modelId = 'sdxl',
  of = 'ada',
}: Spend): Promise<TicketCharge> {
  return {
    ...(await accountOf(of)),
    eventId: randomUUID(),
    signedAt,
    pipeline,
    modelId,
    cost: usdAttos(attos),
  }
}

/** Returns the users without money left. */
export async function charge(tickets: readonly TicketCharge[]) {
  const at = core.clock.now()
  const facts = { id: randomUUID(), at, ratesKnownAt: at }
  const options = { ...facts, settling: () => new Map(), confirm: () => {} }
  const { exhausted } = await tx(core.sql, (db) => ledger.charge(db, userCharges(tickets), options))
  return exhausted
}
export const spend = async (...spends: Spend[]) => charge(await Promise.all(spends.map(ticket)))

export async function head(externalUserId = 'ada') {
  const account = await accountOf(externalUserId)
  const { rows } = await core.sql.query<
    Record<
      'balance_attos' | 'overage_attos' | 'expired_attos' | 'consumed_attos' | 'granted_attos',
      string
    >
  >(
    'select balance_attos, overage_attos, expired_attos, consumed_attos, granted_attos from balances where user_id = $1',
    [account.userId],
  )
  const [row] = rows
  if (!row) throw new Error('no balance row')
  return {
    balance: BigInt(row.balance_attos),
    overage: BigInt(row.overage_attos),
    expired: BigInt(row.expired_attos),
    consumed: BigInt(row.consumed_attos),
    granted: BigInt(row.granted_attos),
  }
}

export async function includedGrants(externalUserId = 'ada'): Promise<number> {
  const account = await accountOf(externalUserId)
  const { rowCount } = await core.sql.query(
    `select 1 from grants where user_id = $1 and kind = 'included'`,
    [account.userId],
  )
  return rowCount ?? 0
}

/** Advances the clock past the time for late tickets, then sweeps. */
export async function lateTicketsAreThrough(): Promise<void> {
  core.clock.advance(quarterHour)
  while ((await ledger.sweep(core.sql, core.clock.now())) > 0) {
    /* Users of the other tests. */
  }
}

/** Checks the invariants of every account in the database by SQL. Each query returns violations. */
export async function expectSoundBooks(): Promise<void> {
  const checks = {
    'a head is the fold of its entries': `
      select b.user_id from balances b left join (
        select app_id, user_id, count(*) as entries, max(seq) as seq, sum(amount_attos) as balance,
          sum(amount_attos) filter (where kind = 'grant') as granted,
          sum(overage_attos - amount_attos) filter (where kind = 'charge') as consumed, sum(overage_attos) as overage,
          -sum(amount_attos) filter (where kind = 'expire') as expired
        from ledger_entries group by app_id, user_id) f using (app_id, user_id)
      where (b.seq, b.balance_attos, b.granted_attos, b.consumed_attos, b.overage_attos, b.expired_attos) is distinct from
        (coalesce(f.seq, 0), coalesce(f.balance, 0), coalesce(f.granted, 0), coalesce(f.consumed, 0), coalesce(f.overage, 0), coalesce(f.expired, 0))
        or coalesce(f.entries, 0) <> b.seq`,
    'each entry goes on where the last one ended': `
      select user_id, seq from (
        select user_id, seq, balance_after_attos, sum(amount_attos) over (partition by app_id, user_id order by seq) as running
        from ledger_entries) e
      where balance_after_attos <> running`,
    'granted is consumed and what remains and what expired': `
      select user_id from balances where granted_attos <> consumed_attos - overage_attos + balance_attos + expired_attos`,
    'a balance is what remains of the grants, and top-ups are the grants that were not included': `
      select b.user_id from balances b left join (
        select app_id, user_id, sum(remaining_attos) as remaining, sum(amount_attos) as granted, sum(amount_attos) filter (where kind = 'grant') as topup
        from grants group by app_id, user_id) g using (app_id, user_id)
      where (b.balance_attos, b.granted_attos, b.topup_attos) is distinct from (coalesce(g.remaining, 0), coalesce(g.granted, 0), coalesce(g.topup, 0))`,
    'included usage is given once for a period, and periods do not overlap': `
      select a.user_id from grants a join grants b using (app_id, user_id)
      where a.kind = 'included' and b.kind = 'included' and a.id < b.id and a.effective_at < b.expires_at and b.effective_at < a.expires_at`,
    'every grant has its entry, and every entry of one its grant': `
      select coalesce(g.id, e.cause_id) from grants g full join (select * from ledger_entries where kind = 'grant') e
        on e.app_id = g.app_id and e.user_id = g.user_id and e.cause_id = g.id and e.amount_attos = g.amount_attos
      where g.id is null or e.cause_id is null`,
    'a user has one subscription': `select user_id from subscriptions group by app_id, user_id having count(*) <> 1`,
  }
  for (const [rule, query] of Object.entries(checks))
    expect({ [rule]: (await core.sql.query(query)).rows }).toEqual({ [rule]: [] })
}
