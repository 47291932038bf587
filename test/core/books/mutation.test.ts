import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { usdAttos } from '../../../core/lib/money.ts'
import { freeTerms } from '../../../core/plans/offers/plan.ts'
import { insertPlan } from '../../../core/plans/offers/store.ts'
import { appId } from '../../../core/shared/ids.ts'
import { connectCore } from '../../../deploy/cli/client.ts'
import { begin, day, observedRate, serviceToken, until } from '../support.ts'
import { issueOne, pay, userOf } from '../billing/invoices/world.ts'
import { type BooksWorld, startBooks, tollgate } from './support.ts'

/**
 * Changes every column of every money table (from the catalogue) as little as possible, in one row.
 * `verify` must report the change, or `free` must list the column with the reason why no figure
 * depends on it. A new column is in neither list and fails until it is added to one.
 */

/** Rows of the tested app, and not of the platform app. */
const own = 'app_id <> (select app_id from platform_app)'

/** Tables of the books, with the row to change. No money figure comes from other tables. */
const tables = {
  tickets: `event_id = 'ugly-2'`,
  envelopes: `key = (select left(encode(sha256('ugly-2'), 'hex'), 32)::uuid)`,
  rates: `source = 'manual:ugly'`,
  ledger_entries: `kind = 'charge' and ticket_count = 2 and charged_app_id is null`,
  balances: `consumed_attos > 0 and ${own}`,
  grants: `kind = 'grant' and feature_key is not null`,
  adjustments: `amount_attos < 0`,
  periods: `after_seq > 0 and ${own}`,
  usage_hourly: `ticket_count = 2`,
  ticket_sessions: `session_id = 'ugly'`,
  checkpoints: own,
  receipt_days: `day > (select min(day) from receipt_days)`,
  receipt_roots: own,
  receipt_chunks: 'true',
  plan_versions: `plan_id in (select id from plans where is_starter_default) and ${own}`,
  subscriptions: own,
  subscription_history: own,
  plans: `is_starter_default and ${own}`,
  plan_bundles: 'true',
  platform_cuts: 'true',
  price_chain: `number > 1 and ${own}`,
  price_heads: own,
  book_heads: `kind = 'root'`,
  test_clock_moves: 'ahead_ms < 4000000',
  invoices: `kind = 'invoice' and number = 1`,
  invoice_lines: `(invoice_id, position) = (
    select invoice_id, max(position) from invoice_lines where kind = 'usage' group by invoice_id order by invoice_id limit 1)`,
} as const

/** Escrow money, which is proved as sums against `balances`, and money outside the books. */
const elsewhere: Readonly<Record<string, string>> = {
  leases: 'balances.lent_attos is their sum (verify.test.ts)',
  authorisations:
    'balances.pending_attos is their sum, and the totals of sessions have their number (verify.test.ts)',
  early_tickets: 'of the escrow: what a hold frees, not what is booked',
  authorised_sessions: 'of the escrow: a report; their counts are proved (verify.test.ts)',
  limits: 'what an owner allows, not what is booked',
  credit_quotas:
    'what a platform admin allows, and a bound of what is unspent, which is counted anew when it is reached',
  billing_settings: 'what an owner or a platform admin allows, not what is booked',
  limit_sessions: 'what limits count, by the bounds of calls',
  network_costs: 'of an earlier release, not used any more',
  network_exposures: 'of an earlier release, not used any more',
  billing_mode_changes: 'why overage was settled; the entries that settle it are proved',
  owner_holds: 'a bound of what leases and authorisations hold of an owner, which is counted anew',
  plan_orders: 'every figure of every row is proved (money-columns.test.ts)',
  prorations: 'every figure of every row is proved (money-columns.test.ts)',
  payments: 'every figure of every row is proved (money-columns.test.ts)',
  payment_returns: 'every figure of every row is proved (money-columns.test.ts)',
  payment_attempts: 'every figure of every row is proved (money-columns.test.ts)',
  checkouts: 'what a page asks for; what was paid is a payment',
  quarantine: 'events that are no money yet',
  ticket_archives: 'proved as a whole (archive.test.ts)',
  archived_charges: 'proved against their charges (archive.test.ts)',
}

const says = 'it only says something about the ticket; what it costs and who pays is proved'
const later = 'what will be: until then nothing is computed from it'
const watch = 'what the watch for losses remembers'

const free: Readonly<Record<string, string>> = {
  'tickets.app_name': says,
  'tickets.num_tickets': says,
  'tickets.orch_address': says,
  'tickets.orch_url': says,
  'tickets.emitted_at': says,
  'tickets.stated_usd': 'what the signer says: nothing is charged by it',
  'rates.created_at':
    'decides only from when a newer observation must be used; an older one is reported',
  'balances.lend_after': 'a timer of the escrow',
  'balances.late_until': 'a timer of the escrow',
  'balances.updated_at': 'nothing reads it',
  'balances.ceiling_attos': 'what the user may owe: no booked figure',
  'balances.collects_by': 'what is collected when: no booked figure',
  'balances.collect_step_attos': 'what is collected when: no booked figure',
  'balances.lacks_card': 'why the ceiling is 0',
  'balances.booked_through':
    'a later one only delays booking times; one before the last entry is reported',
  'ticket_sessions.manifest_id': says,
  'ticket_sessions.app_name': says,
  'ticket_sessions.pipeline': says,
  'ticket_sessions.model_id': says,
  'ticket_sessions.late_count': watch,
  'ticket_sessions.suspected': watch,
  'ticket_sessions.suspected_at': watch,
  'ticket_sessions.lost_count': watch,
  'ticket_sessions.watched': watch,
  'ticket_sessions.irregular': watch,
  'ticket_sessions.lost': watch,
  'ticket_sessions.closed_count': watch,
  'ticket_sessions.closed_below': watch,
  'ledger_entries.xact':
    'which day proves it, and the place in the live feed: one that leaves its day is reported',
  'receipt_days.built_at': 'until when roots were missing',
  'receipt_roots.created_at': 'nothing reads it',
  'subscriptions.id': 'a name',
  'subscriptions.status': 'one value is allowed',
  'subscription_history.id': 'a name',
  'subscription_history.created_at': 'where nothing came before it, nothing is computed from it',
  'subscription_history.reason': 'why it ended: nothing is computed from it',
  'subscriptions.next_id': later,
  'subscriptions.next_plan_id': later,
  'subscriptions.next_at': later,
  'subscriptions.next_reason': later,
  'subscriptions.next_set_at': later,
  'plans.name': 'a name',
  'plans.name_key': 'a name',
  'plans.type': 'repeats the newest version',
  'plans.billing_cycle': 'repeats the newest version',
  'plans.status': 'whether it can be chosen',
  'plans.is_network_default': 'nobody is subscribed to it',
  'plans.created_at': 'nothing is computed from it',
  'plans.updated_at': 'nothing is computed from it',
  'plans.deleted_at': 'whether it can be chosen',
  'invoices.reason': 'why it was issued: nothing is computed from it',
  'invoices.note': 'a text',
  'invoice_lines.description': 'a text',
  'invoice_lines.plan_id': 'a name',
  'invoice_lines.units': 'what the amount of an overage line is for',
  'test_clock_moves.snapshot': 'which day it ended: the cut of the day has it',
  'test_clock_moves.since': 'moved by less than the minute that clocks of cores may differ',
}

/** The smallest change of a value, by type. */
const change: Readonly<Record<string, (column: string) => string>> = {
  bigint: (c) => `coalesce(${c}, 0) + 1`,
  integer: (c) => `coalesce(${c}, 0) + 1`,
  smallint: (c) => `${c} + 1`,
  'double precision': (c) => `coalesce(${c}, 0) + 1`,
  numeric: (c) => `coalesce(${c}, 0) + 1`,
  text: (c) => `coalesce(${c}, '') || 'x'`,
  uuid: (c) =>
    `(left(${c}::text, 35) || case when right(${c}::text, 1) = '0' then '1' else '0' end)::uuid`,
  boolean: (c) => `not ${c}`,
  'timestamp with time zone': (c) => `coalesce(${c}, 'epoch') + interval '1 second'`,
  bytea: (c) =>
    `set_byte(coalesce(${c}, '\\x00'), 0, (get_byte(coalesce(${c}, '\\x00'), 0) + 1) % 256)`,
  int8multirange: (c) => `${c} + int8multirange(int8range(90, 91))`,
  date: (c) => `${c} + 1`,
  jsonb: () => `'{}'::jsonb`,
  pg_snapshot: () => `'7:9:8'::pg_snapshot`,
  ARRAY: (c) => `${c}[1:0] || ${c}[2:] || ${c}[1]`,
}

/** Ids that are null in the changed row, so that any value is the smallest change. */
const usuallyNull = new Set([
  'adjustments.credit_id',
  'ledger_entries.charged_app_id',
  'invoices.invoice_id',
  'invoice_lines.plan_id',
  'invoice_lines.charged_app_id',
])

interface Column {
  readonly table: keyof typeof tables
  readonly column: string
  readonly type: string
}

let world: BooksWorld
let columns: Column[] = []
beforeAll(async () => {
  world = await startBooks(observedRate, { isTest: true })
  const core = connectCore({ target: world.core.target, token: serviceToken })
  const m2m = world.as(world.app.basic)
  const ada = { clientId: world.app.clientId, externalUserId: 'ada' }
  // The plan has its own rate and a rate for a pipeline. The platform takes a cut from the first
  // ticket on.
  const app = `(select app_id from clients where client_id = '${world.app.clientId}')`
  await world.damage(
    `insert into accounts (id, email, created_at)
    values ('00000000-0000-4000-8000-00000000000a', 'owner@example.com', '2026-01-01T00:00:00Z');
    insert into members (app_id, account_id, role, created_at)
    values (${app}, '00000000-0000-4000-8000-00000000000a', 'owner', '2026-01-01T00:00:00Z');
    update plan_versions set retail_rate = 0.0000013
    where plan_id = (select id from plans where is_starter_default and app_id = ${app});
    insert into plan_bundles (app_id, plan_id, version, id, position, pipeline, model_id, retail_rate)
    select app_id, plan_id, version, '00000000-0000-4000-8000-000000000001', 0, 'live', '*', 0.0000011
    from plan_versions
    where plan_id = (select id from plans where is_starter_default and app_id = ${app});
    insert into platform_cuts (app_id, since, percent, created_at)
    values (${app}, '${begin.toISOString()}', 12.5, '2026-01-01T00:00:00Z')`,
  )
  await m2m.upsertUser(ada)
  await core.metering.recordRate({
    usdPerEth: '2987.654321098765432109',
    source: 'ugly',
    observedAt: undefined,
  })
  const ugly = (n: number, fee: string, more: object = {}) => ({
    id: `ugly-${n}`,
    session_id: 'ugly',
    sequence_number: n,
    computed_fee: fee,
    billable_secs: '1.0000007',
    pixels: 1_234_567,
    current_time: new Date(world.clock.now().getTime() + n).toISOString(),
    ...more,
  })
  await m2m.createGrant({ ...ada, amountUsdMicros: '1000003', featureKey: 'live' })
  await m2m.createGrant({ ...ada, amountUsdMicros: '770077' })
  await world.ingest(ugly(1, '1717171717171717'), ugly(2, '141414141414149'))
  const adjust = (amountUsdMicros: string, eventId?: string) =>
    core.allowances.createAdjustment({
      ...ada,
      amountUsdMicros,
      reason: 'ugly',
      author: 'ada',
      eventId,
      uncovered: 'overage',
      idempotencyKey: undefined,
    })
  await adjust('-333331')
  await adjust('17')
  await adjust('200001', 'ugly-2')
  // Enter the next period: the included usage expires.
  world.clock.set(new Date(begin.getTime() + 31 * day))
  await m2m.getBalance(ada)
  await core.metering.recordRate({ usdPerEth: '3111.1', source: 'later', observedAt: undefined })
  await world.ingest(ugly(3, '77777777777777'))
  await world.ingest(ugly(4, '555555555555', { pipeline: 'other' }))
  await adjust('-3')
  // Change the plan immediately: the included usage ends early.
  const [{ app_id: appKey } = { app_id: '' }] = await world.rows(`select ${app} as app_id`)
  const plan = { appId: appId(appKey ?? ''), id: randomUUID(), name: 'Studio' }
  const kind = { status: 'active', isStarterDefault: false, isNetworkDefault: false } as const
  const terms = { ...freeTerms, included: usdAttos(3n * 10n ** 18n) }
  await insertPlan(world.sql, { ...plan, ...kind }, { terms, at: begin })
  world.clock.set(new Date(begin.getTime() + 33 * day))
  await core.subscriptions.updateSubscription({
    ...ada,
    planId: plan.id,
    timing: 'immediate',
    idempotencyKey: undefined,
  })
  // Move the app's clock ahead twice, and book a ticket after each move.
  await core.metering.recordRate({ usdPerEth: '3222.2', source: 'ahead', observedAt: undefined })
  for (const n of [5, 6]) {
    await core.testClocks.advanceTestClock({
      clientId: world.app.clientId,
      move: { to: undefined, advanceSeconds: 3_600 },
    })
    world.clock.advance(180_000)
    await world.ingest(ugly(n, '88888888888888'))
  }
  await issueInvoices((n) => world.ingest(ugly(n, '2222222222222222')))
  core.close()
  await tollgate('rebuild')
  // An app can have only one network default, so delete it: then the flag of another plan can
  // change.
  await world.damage(
    `delete from plan_versions where plan_id in (select id from plans where is_network_default);
    delete from plans where is_network_default`,
  )
  await world.chainPrices()
  // A starting core builds the root of the previous day, which has all of the tickets.
  await makeRoot()
  columns = (
    await world.rows(
      `select table_name, column_name, data_type from information_schema.columns
      where table_schema = current_schema() and table_name = any($1) order by table_name, ordinal_position`,
      [Object.keys(tables)],
    )
  ).map(({ table_name, column_name, data_type }) => ({
    table: table_name as Column['table'],
    column: String(column_name),
    type: String(data_type),
  }))
})
afterAll(() => world.stop())

/** Issues an invoice with a price, and pays it; then another one. */
async function issueInvoices(use: (n: number) => Promise<unknown>): Promise<void> {
  await use(7)
  const user = await userOf(world, world.app.clientId)
  const at = world.clock.now()
  const price = {
    kind: 'proration',
    description: 'Studio',
    amount: usdAttos(-(10n ** 17n)),
    periodStart: at,
    periodEnd: new Date(at.getTime() + day),
  } as const
  const paid = await issueOne(world, user, { prices: [price] })
  if (!paid) throw new Error('no invoice was issued')
  await pay(world, paid, randomUUID())
  await use(8)
  await issueOne(world, user)
}

async function makeRoot(): Promise<void> {
  const { core } = await world.startAnother(observedRate)
  const built = 'select day from receipt_days where built_at is not null'
  await until(async () => (await world.rows(built)).length === 2)
  await core.stop()
}

/** Changes columns of one row as little as possible, runs `act`, and undoes the change. */
function changed<T>(
  [first, ...others]: readonly [Column, ...Column[]],
  act: () => Promise<T>,
): Promise<T> {
  const { table, column } = first
  const more = others.map((other) => `, ${other.column} = ${changeOf(other)}`)
  return changedTo({ table, column, where: tables[table] }, changeOf(first) + more.join(''), act)
}

function changeOf({ table, column, type }: Column): string {
  // The next number is taken, so the key would reject it.
  const isNumber = type === 'bigint' || type === 'integer'
  const isKey = isNumber && (column === 'id' || keys[table]?.split(', ').includes(column))
  const isMissing = usuallyNull.has(`${table}.${column}`)
  const value = isMissing ? 'gen_random_uuid()' : isKey ? `${column} + 100` : change[type]?.(column)
  if (value === undefined) throw new Error(`no change for a ${type}: ${table}.${column}`)
  return value
}

interface Cell {
  readonly table: keyof typeof tables
  readonly column: string
  readonly where: string
}

async function changedTo<T>(
  { table, column, where }: Cell,
  value: string,
  act: () => Promise<T>,
): Promise<T> {
  await world.damage(
    `create table kept as select * from ${table}; ` +
      `alter table ${table} disable trigger user;` +
      (await dropChecks(table)) +
      `update ${table} set ${column} = ${value} where (${key(table)}) in (select ${key(table)} from ${table} where ${where} limit 1)`,
  )
  try {
    return await act()
  } finally {
    await world.damage(
      `delete from ${table}; insert into ${table} select * from kept; drop table kept; alter table ${table} enable trigger user`,
    )
  }
}

const dropped = new Set<string>()

/**
 * Drops check constraints (once per table), because verify must find a change even without them.
 */
async function dropChecks(table: string): Promise<string> {
  if (dropped.has(table)) return ''
  dropped.add(table)
  const rows = await world.rows(
    `select conname from pg_constraint where conrelid = $1::regclass and contype = 'c'`,
    [table],
  )
  return rows.map(({ conname }) => `alter table ${table} drop constraint ${conname};`).join('')
}

const keys: Readonly<Record<string, string>> = {
  tickets: 'event_id',
  envelopes: 'key',
  rates: 'id',
  ledger_entries: 'user_id, seq',
  balances: 'user_id',
  grants: 'id',
  adjustments: 'id',
  periods: 'user_id, starts_at',
  usage_hourly: 'user_id, hour, pipeline, model_id',
  ticket_sessions: 'user_id, session_id',
  plan_versions: 'plan_id, version, id',
  subscriptions: 'user_id',
  subscription_history: 'id',
  plans: 'id',
  checkpoints: 'app_id, number',
  receipt_days: 'day',
  receipt_roots: 'app_id, day',
  receipt_chunks: 'app_id, day, number',
  plan_bundles: 'id',
  platform_cuts: 'app_id, since',
  price_chain: 'app_id, number',
  price_heads: 'app_id',
  book_heads: 'app_id, kind',
  test_clock_moves: 'app_id, since',
  invoices: 'id, number',
  invoice_lines: 'invoice_id, position',
}
const key = (table: string): string => keys[table] ?? 'id'

const nameOf = ({ table, column }: Column): string => `${table}.${column}`

describe('smallest change of a column', () => {
  it('covers every table with an amount', async () => {
    const rows = await world.rows(
      `select distinct table_name from information_schema.columns c
      join information_schema.tables t using (table_schema, table_name)
      where table_schema = current_schema() and table_type = 'BASE TABLE' and table_name !~ '^tickets_[0-9]'
        and (column_name like any (array['%\\_attos', '%\\_wei', '%\\_cents']))`,
    )
    const known = [...Object.keys(tables), ...Object.keys(elsewhere)]
    expect(
      rows.map(({ table_name }) => table_name).filter((name) => !known.includes(String(name))),
    ).toEqual([])
  })

  it('is found by the head, even when hashes are rewritten consistently', async () => {
    const head = async () => (await tollgate('verify', '--head')).text
    const before = await head()
    expect(before).toMatch(/\napp_\w+ +1 +\S+ +\d+ +1 +[0-9a-f]{64}\n$/)
    expect(await head()).toBe(before)
    // Replace the last entry's hash, in the ledger and in the balance.
    await world.damage(
      `create table kept_entries as select * from ledger_entries; create table kept_balances as select * from balances;
      update ledger_entries set hash = sha256(hash) where seq = (select max(seq) from ledger_entries);
      update balances set head_hash = sha256(head_hash)`,
    )
    expect((await tollgate('verify')).text).toMatch(
      /DIFFERENCE checkpoints .*checkpoint=1: root is/,
    )
    await world.damage(
      `delete from ledger_entries; insert into ledger_entries select * from kept_entries;
      delete from balances; insert into balances select * from kept_balances; drop table kept_entries, kept_balances`,
    )
    await world.damage(`update checkpoints set entries = entries + 1`)
    expect((await tollgate('verify')).text).toMatch(
      /DIFFERENCE checkpoints .*checkpoint=1: head is/,
    )
    await world.damage(`update checkpoints set entries = entries - 1`)
    expect((await tollgate('verify')).code).toBe(0)
  })

  it('starts with books that are right', async () => {
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('is reported by verify unless the column is free', async () => {
    const missed: string[] = []
    for (const column of columns.filter((one) => !(nameOf(one) in free))) {
      const { code, text } = await changed([column], () => tollgate('verify'))
      if (code !== 1 || !text.includes('DIFFERENCE'))
        missed.push(`${nameOf(column)}: ${text.slice(0, 300)}`)
    }
    expect(missed).toEqual([])
    expect((await tollgate('verify')).text).toContain('the books are right')
  }, 600_000)

  it('is not reported in free columns, even all at once', async () => {
    const names = columns.map(nameOf)
    expect(Object.keys(free).filter((name) => !names.includes(name))).toEqual([])
    const freeColumns = columns.filter((one) => nameOf(one) in free)
    for (const [table, [first, ...others]] of Map.groupBy(freeColumns, (one) => one.table)) {
      if (!first) continue
      const { code, text } = await changed([first, ...others], () => tollgate('verify'))
      expect({ table, code, text }).toMatchObject({ table, code: 0 })
    }
  }, 60_000)

  it.each([
    ['clock_ms', 'clock_ms + 1'],
    ['clock_ms', 'clock_ms - 1'],
    ['clock_ms', 'null'],
    ['clock_ms', '(select min(ahead_ms) from test_clock_moves)'],
    ['signed_at', `signed_at + interval '1 microsecond'`],
    ['signed_at', `signed_at - clock_ms * interval '1 millisecond'`],
    ['signed_at', `signed_at + interval '1 hour', clock_ms = clock_ms + 3600000`],
    ['signed_at', `signed_at - clock_ms * interval '1 millisecond', clock_ms = null`],
  ])('is reported for a ticket dated by a test clock: %s = %s', async (column, value) => {
    const row = { table: 'tickets', column, where: `event_id = 'ugly-6'` } as const
    const { code, text } = await changedTo(row, value, () => tollgate('verify'))
    expect(text).toContain('DIFFERENCE')
    expect(code).toBe(1)
    expect((await tollgate('verify')).code).toBe(0)
  })
})
