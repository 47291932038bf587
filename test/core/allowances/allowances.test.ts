import { randomInt, randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createLedger } from '../../../core/allowances/ledger.ts'
import { type TicketCharge, userCharges } from '../../../core/metering/ingest/charges.ts'
import { createClocks } from '../../../core/platform/clocks/clocks.ts'
import { appId, userId } from '../../../core/platform/ids.ts'
import { connectCore } from '../../../deploy/cli/client.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { tx } from '../../../core/lib/sql.ts'
import type { CreateGrantRequest } from '../../../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import {
  type AppOptions,
  type Rpcs,
  type TestApp,
  type TestCore,
  atOnce,
  bearerOf,
  begin,
  day,
  outcome,
  second,
  serviceToken,
  startTestCore,
} from '../support.ts'

const micro = 10n ** 12n
const month = 31 * day
const quarterHour = day / 96

let core: TestCore
let app: TestApp
let m2m: Rpcs
const ledger = createLedger({ clocks: createClocks() })
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  core.clock.set(begin)
  app = await core.newApp()
  m2m = core.as(app.basic)
  await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
})

const grant = (request: Partial<CreateGrantRequest> = {}) =>
  m2m.createGrant({
    clientId: app.clientId,
    externalUserId: 'ada',
    amountUsdMicros: '250000',
    ...request,
  })

async function allowance(externalUserId = 'ada') {
  const { allowance: read } = await m2m.getAllowance({ clientId: app.clientId, externalUserId })
  if (!read) throw new Error('no allowance in the answer')
  return read
}

async function balance(externalUserId = 'ada') {
  const { balance: read } = await m2m.getBalance({ clientId: app.clientId, externalUserId })
  if (!read) throw new Error('no balance in the answer')
  return read
}

async function accountOf(externalUserId = 'ada', clientId = app.clientId) {
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

interface Spend {
  readonly micros?: bigint
  readonly attos?: bigint
  readonly signedAt?: Date
  readonly pipeline?: string
  readonly modelId?: string
  readonly of?: string
}

async function ticket({
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
async function charge(tickets: readonly TicketCharge[]) {
  const at = core.clock.now()
  const facts = { id: randomUUID(), at, ratesKnownAt: at }
  const options = { ...facts, settling: () => new Map(), confirm: () => {} }
  const { exhausted } = await tx(core.sql, (db) => ledger.charge(db, userCharges(tickets), options))
  return exhausted
}
const spend = async (...spends: Spend[]) => charge(await Promise.all(spends.map(ticket)))

async function head(externalUserId = 'ada') {
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

async function includedGrants(externalUserId = 'ada'): Promise<number> {
  const account = await accountOf(externalUserId)
  const { rowCount } = await core.sql.query(
    `select 1 from grants where user_id = $1 and kind = 'included'`,
    [account.userId],
  )
  return rowCount ?? 0
}

describe('Starter allowance', () => {
  it('exists from the start and is listed among the grants', async () => {
    const read = await allowance()
    expect(read).toEqual({
      externalUserId: 'ada',
      balanceUsdMicros: '5000000',
      remainingUsdMicros: '5000000',
      consumedUsdMicros: '0',
      lifetimeGrantedUsdMicros: '5000000',
      hasAccess: true,
      featureBalances: [],
      grants: [
        {
          id: expect.any(String),
          amountUsdMicros: '5000000',
          remainingUsdMicros: '5000000',
          source: 'plan_adjustment',
          featureKey: undefined,
          createdAt: begin.toISOString(),
          expiresAt: '2026-04-10T12:00:00.250Z',
        },
      ],
    })
    expect(await balance()).toEqual({
      externalUserId: 'ada',
      featureBalances: [],
      balanceUsdMicros: '5000000',
      remainingUsdMicros: '5000000',
      consumedUsdMicros: '0',
      lifetimeGrantedUsdMicros: '5000000',
      hasAccess: true,
      unpricedTickets: '0',
    })
  })

  it('may be zero, so that grants are the only money', async () => {
    app = await core.newApp({ starterUsdMicros: '0' })
    m2m = core.as(app.basic)
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
    expect(await allowance()).toMatchObject({
      balanceUsdMicros: '0',
      lifetimeGrantedUsdMicros: '0',
      hasAccess: false,
      grants: [],
    })
    core.clock.advance(month)
    expect(await allowance()).toMatchObject({ balanceUsdMicros: '0', grants: [] })
    await grant({ amountUsdMicros: '1' })
    expect(await allowance()).toMatchObject({
      balanceUsdMicros: '1',
      lifetimeGrantedUsdMicros: '1',
      hasAccess: true,
    })
    await spend({ micros: 3n })
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '0',
      consumedUsdMicros: '3',
      hasAccess: false,
    })
    await expectSoundBooks()
  })
})

describe('createGrant', () => {
  it('adds a grant and leaves the Starter allowance unchanged', async () => {
    const { allowance: after, grant: made } = await grant({
      source: 'promo',
      featureKey: 'text-to-image',
    })
    expect(made).toEqual({
      id: expect.any(String),
      amountUsdMicros: '250000',
      remainingUsdMicros: '250000',
      source: 'promo',
      featureKey: 'text-to-image',
      createdAt: begin.toISOString(),
      expiresAt: undefined,
    })
    expect(after).toMatchObject({
      balanceUsdMicros: '5000000',
      lifetimeGrantedUsdMicros: '5250000',
      hasAccess: true,
      featureBalances: [{ featureKey: 'text-to-image', balanceUsdMicros: '250000' }],
    })
    expect(after?.grants).toHaveLength(2)
    expect(await allowance()).toEqual(after)
    await grant()
    expect(await allowance()).toMatchObject({
      balanceUsdMicros: '5250000',
      lifetimeGrantedUsdMicros: '5500000',
    })
    await expectSoundBooks()
  })

  it.each([
    '',
    '0',
    '-1',
    '-5',
    '1.5',
    '1.0',
    'abc',
    '+5',
    '0x10',
    ' 5',
    '5 ',
    '05',
    '1e3',
    '5_000',
    '٥',
    '5\u0000',
    '9'.repeat(31),
    '1000000000000001',
  ])('rejects the amount %j', async (amountUsdMicros) => {
    expect(await outcome(grant({ amountUsdMicros }))).toBe('AMOUNT_INVALID')
    expect(await balance()).toMatchObject({ lifetimeGrantedUsdMicros: '5000000' })
  })

  it('accepts the largest amount repeatedly, exact to the micro', async () => {
    const { rows } = await core.sql.query('select app_id from clients where client_id = $1', [
      app.clientId,
    ])
    await core.sql.query(
      `insert into credit_quotas (app_id, max_attos, bound_attos, updated_at) values ($1, 4e27, 0, now())
       on conflict (app_id) do update set max_attos = 4e27`,
      [rows[0].app_id],
    )
    for (let i = 0; i < 3; i++) await grant({ amountUsdMicros: '1000000000000000' })
    await spend({ micros: 9_007_199_254_740_993n % 10n ** 15n })
    expect(await balance()).toMatchObject({
      lifetimeGrantedUsdMicros: '3000000005000000',
      consumedUsdMicros: '7199254740993',
    })
    await expectSoundBooks()
  })

  it.each(['trial', 'manual', 'promo', 'plan_adjustment'])(
    'accepts the source %s',
    async (source) => {
      expect((await grant({ source })).grant?.source).toBe(source)
    },
  )

  it.each(['', 'Manual', 'topup', 'manual ', 'manual\u0000'])(
    'rejects the source %j',
    async (source) => {
      expect(await outcome(grant({ source }))).toBe('REQUEST_INVALID')
    },
  )

  it.each([
    [undefined, undefined],
    ['', undefined],
    ['  ', undefined],
    ['network_spend', 'network_spend'],
    ['upscale', 'upscale'],
    [' text-to-image:sdxl ', 'text-to-image:sdxl'],
    [`live:${'x'.repeat(123)}`, `live:${'x'.repeat(123)}`],
  ])('stores the featureKey %j as %j', async (featureKey, kept) => {
    expect((await grant({ featureKey })).grant?.featureKey).toBe(kept)
  })

  it.each([
    'nothing',
    'Live',
    'live:',
    `live:${'x'.repeat(124)}`,
    'live:a b',
    ':a',
    'é',
    'a\u0000',
    'network_spend:live',
  ])(
    'rejects the featureKey %j, which the catalogue lacks, and lists known ones',
    async (featureKey) => {
      const refusal = grant({ featureKey })
      expect(await outcome(refusal)).toBe('FEATURE_UNKNOWN')
      await expect(refusal).rejects.toThrow(/network_spend, live-video-to-video, live, fixed/)
      expect(await allowance()).toMatchObject({ lifetimeGrantedUsdMicros: '5000000' })
    },
  )

  it('rejects features and models that the app excludes', async () => {
    await core.sql.query(
      `insert into manifests (app_id, excluded, updated_at)
       select app_id, '[{"pipeline":"live","modelId":"flux"},{"pipeline":"upscale","modelId":"*"}]', now()
       from clients where client_id = $1`,
      [app.clientId],
    )
    for (const featureKey of ['live:flux', 'upscale', 'upscale:x4'])
      expect(await outcome(grant({ featureKey }))).toBe('FEATURE_UNKNOWN')
    expect((await grant({ featureKey: 'live:sdxl' })).grant?.featureKey).toBe('live:sdxl')
  })

  it('rejects unknown users and users of another app', async () => {
    const other = await core.newApp()
    await core.as(other.basic).upsertUser({ clientId: other.clientId, externalUserId: 'theirs' })
    expect(await outcome(grant({ externalUserId: 'nobody' }))).toBe('NOT_FOUND')
    expect(await outcome(grant({ externalUserId: 'theirs' }))).toBe('NOT_FOUND')
    expect((await m2m.listUsers({ clientId: app.clientId })).users).toHaveLength(1)
  })

  it('shows users the same balance through their own token', async () => {
    await grant()
    const { accessToken } = await m2m.mintUserToken({
      clientId: app.clientId,
      externalUserId: 'ada',
    })
    expect((await core.as(bearerOf(accessToken)).getOwnBalance()).balance).toEqual(await balance())
  })
})

describe('createGrant with an Idempotency-Key', () => {
  it('grants once and replays the original response, even after the balance changed', async () => {
    const first = await grant({ idempotencyKey: 'g-1' })
    await spend({ micros: 7n })
    await grant()
    expect(await grant({ idempotencyKey: 'g-1' })).toEqual(first)
    expect(await balance()).toMatchObject({ lifetimeGrantedUsdMicros: '5500000' })
  })

  it('grants once for twenty concurrent callers of two cores', async () => {
    const two = await core.startAnother()
    const ends = await atOnce(20, (index) =>
      (index % 2 === 0 ? m2m : two.as(app.basic))
        .createGrant({
          clientId: app.clientId,
          externalUserId: 'ada',
          amountUsdMicros: '1',
          source: 'manual',
          idempotencyKey: 'g-1',
        })
        .then(
          ({ grant: made }) => made?.id,
          (error: Error) => ('reason' in error ? error.reason : error),
        ),
    )
    expect(new Set(ends.filter((end) => end !== 'IDEMPOTENCY_CONFLICT')).size).toBe(1)
    expect(await balance()).toMatchObject({ lifetimeGrantedUsdMicros: '5000001' })
    await two.core.stop()
  })

  it.each([
    { amountUsdMicros: '250001' },
    { source: 'promo' },
    { featureKey: 'live' },
    { externalUserId: 'bob' },
  ])('rejects another body: %j', async (other) => {
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'bob' })
    await grant({ idempotencyKey: 'g-1' })
    expect(await outcome(grant({ idempotencyKey: 'g-1', ...other }))).toBe('IDEMPOTENCY_CONFLICT')
    expect(await balance()).toMatchObject({ lifetimeGrantedUsdMicros: '5250000' })
  })

  it('answers each concurrent request with its own figures', async () => {
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'bob' })
    const answers = await Promise.all([
      grant({ amountUsdMicros: '1', idempotencyKey: 'a' }),
      grant({ amountUsdMicros: '2', externalUserId: 'bob' }),
      grant({ amountUsdMicros: '3' }),
      outcome(grant({ amountUsdMicros: '4', externalUserId: 'nobody' })),
      grant({ amountUsdMicros: '5', idempotencyKey: 'b' }),
    ])
    expect(answers[3]).toBe('NOT_FOUND')
    const figures = answers.flatMap((answer) => (typeof answer === 'string' ? [] : [answer]))
    expect(figures.map((answer) => answer.grant?.amountUsdMicros)).toEqual(['1', '2', '3', '5'])
    for (const { allowance, grant: own } of figures)
      expect(allowance?.grants.map(({ id }) => id)).toContain(own?.id)
    expect(await balance()).toMatchObject({ lifetimeGrantedUsdMicros: '5000009' })
    expect(await balance('bob')).toMatchObject({ lifetimeGrantedUsdMicros: '5000002' })
    expect(await grant({ amountUsdMicros: '5', idempotencyKey: 'b' })).toEqual(answers[4])
  })

  it('grants twice without a key', async () => {
    await Promise.all([grant(), grant()])
    expect(await balance()).toMatchObject({ lifetimeGrantedUsdMicros: '5500000' })
  })
})

describe('charge', () => {
  it('burns included usage first, then credits in order of creation', async () => {
    for (const amountUsdMicros of ['10', '20']) {
      core.clock.advance(second)
      await grant({ amountUsdMicros })
    }
    await spend({ micros: 5_000_015n })
    const { grants } = await allowance()
    expect(grants.map(({ remainingUsdMicros }) => remainingUsdMicros)).toEqual(['0', '0', '15'])
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '15',
      consumedUsdMicros: '5000015',
      lifetimeGrantedUsdMicros: '5000030',
    })
    await expectSoundBooks()
  })

  it('books a micro beyond the balance as overage', async () => {
    const exhausted = await spend({ micros: 5_000_001n })
    expect(exhausted).toEqual([(await accountOf()).userId])
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '0',
      remainingUsdMicros: '0',
      consumedUsdMicros: '5000001',
      hasAccess: false,
    })
    expect(await head()).toMatchObject({ overage: micro, balance: 0n })
    await grant({ amountUsdMicros: '1' })
    expect(await balance()).toMatchObject({ balanceUsdMicros: '1', hasAccess: true })
  })

  it('rounds consumption up and balances down, once', async () => {
    await spend(...Array.from({ length: 1000 }, () => ({ attos: 3000n })))
    expect(await balance()).toMatchObject({ balanceUsdMicros: '4999999', consumedUsdMicros: '1' })
    await spend({ attos: 5_000_000n * micro - 3_000_001n })
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '0',
      consumedUsdMicros: '5000000',
      hasAccess: false,
    })
  })

  it('gives no access for feature-bound money and shows it separately', async () => {
    const asked = async () =>
      (await core.as().getAccess({ clientId: app.clientId, externalUserId: 'ada' })).access
        ?.remainingUsdAttos
    const { userId: ada } = await accountOf()
    await grant({ amountUsdMicros: '10', featureKey: 'text-to-image' })
    expect(await asked()).toBe((5_000_000n * micro).toString())
    expect(await spend({ micros: 5_000_000n, pipeline: 'upscale' })).toEqual([ada])
    expect(await asked()).toBe('0')
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '0',
      remainingUsdMicros: '0',
      hasAccess: false,
      featureBalances: [{ featureKey: 'text-to-image', balanceUsdMicros: '10' }],
    })
    await spend({ micros: 4n, pipeline: 'text-to-image' })
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '0',
      featureBalances: [{ featureKey: 'text-to-image', balanceUsdMicros: '6' }],
    })
    await grant({ amountUsdMicros: '7', featureKey: 'network_spend' })
    expect(await asked()).toBe((7n * micro).toString())
  })

  it('lets a feature-bound grant pay only for its feature', async () => {
    await spend({ micros: 5_000_000n })
    for (const featureKey of ['text-to-image', 'text-to-image:flux', 'network_spend']) {
      core.clock.advance(1)
      await grant({ amountUsdMicros: '10', featureKey })
    }
    const left = async () =>
      (await allowance()).grants.slice(1).map(({ remainingUsdMicros }) => remainingUsdMicros)
    await spend({ micros: 4n, pipeline: 'text-to-image', modelId: 'sdxl' })
    expect(await left()).toEqual(['6', '10', '10'])
    await spend({ micros: 8n, pipeline: 'text-to-image', modelId: 'flux' })
    expect(await left()).toEqual(['0', '8', '10'])
    await spend({ micros: 13n, pipeline: 'upscale', modelId: 'flux' })
    expect(await left()).toEqual(['0', '8', '0'])
    expect(await head()).toMatchObject({ overage: 3n * micro })
    await expectSoundBooks()
  })

  it('returns consistent figures during concurrent charges', async () => {
    const reads: Promise<{
      balanceUsdMicros: string
      consumedUsdMicros: string
      lifetimeGrantedUsdMicros: string
    }>[] = []
    const one = await ticket({ micros: 1n })
    for (let i = 0; i < 60; i++) {
      const work = [
        charge([{ ...one, eventId: randomUUID() }]),
        charge([{ ...one, eventId: randomUUID() }]),
      ]
      reads.push(balance(), balance(), balance(), balance(), allowance())
      await Promise.all([...work, ...reads.slice(-5)])
    }
    for (const {
      balanceUsdMicros,
      consumedUsdMicros,
      lifetimeGrantedUsdMicros,
    } of await Promise.all(reads)) {
      expect(BigInt(balanceUsdMicros) + BigInt(consumedUsdMicros)).toBe(
        BigInt(lifetimeGrantedUsdMicros),
      )
    }
  })
})

describe('entering the next period', () => {
  it('renews included usage, expires the old one, keeps grants and resets consumption', async () => {
    await grant()
    await spend({ micros: 5_100_000n })
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '150000',
      consumedUsdMicros: '5100000',
    })
    core.clock.set(new Date('2026-04-10T12:00:00.249Z'))
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '150000',
      consumedUsdMicros: '5100000',
    })
    core.clock.advance(1)
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '5150000',
      consumedUsdMicros: '0',
      lifetimeGrantedUsdMicros: '5250000',
    })
    expect((await allowance()).grants.map(({ expiresAt }) => expiresAt)).toEqual([
      undefined,
      '2026-05-10T12:00:00.250Z',
    ])
    await expectSoundBooks()
  })

  it('does not carry over unused included usage', async () => {
    await spend({ micros: 1n })
    core.clock.advance(month)
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '5000000',
      lifetimeGrantedUsdMicros: '5000000',
    })
    await lateTicketsAreThrough()
    expect(await head()).toMatchObject({ expired: 4_999_999n * micro })
    await expectSoundBooks()
  })

  it('happens once for concurrent reads, grants, charges and sweeps of two cores', async () => {
    const two = await core.startAnother()
    core.clock.advance(month)
    const tickets = await Promise.all(Array.from({ length: 6 }, () => ticket({ micros: 1n })))
    await Promise.all([
      ...(await atOnce(8, async (index) =>
        (index % 2 === 0 ? m2m : two.as(app.basic)).getBalance({
          clientId: app.clientId,
          externalUserId: 'ada',
        }),
      )),
      ...tickets.map((one) => charge([one])),
      grant({ amountUsdMicros: '1' }),
      grant({ amountUsdMicros: '1' }),
      ledger.sweep(core.sql, core.clock.now()),
      ledger.sweep(core.sql, core.clock.now()),
      core.as().getAccess({ clientId: app.clientId, externalUserId: 'ada' }),
    ])
    expect(await includedGrants()).toBe(2)
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '4999996',
      consumedUsdMicros: '6',
      lifetimeGrantedUsdMicros: '5000002',
    })
    await expectSoundBooks()
    await two.core.stop()
  })

  it('skips periods without activity', async () => {
    core.clock.advance(400 * day)
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '5000000',
      consumedUsdMicros: '0',
      lifetimeGrantedUsdMicros: '5000000',
    })
    expect(await includedGrants()).toBe(2)
    await expectSoundBooks()
  })

  it.each(['first', 'after the balance was read'])(
    'lets a late ticket use the included usage of its own period: %s',
    async (when) => {
      const late = new Date(core.clock.now().getTime() + 5 * day)
      core.clock.advance(month)
      if (when !== 'first') await balance()
      await spend({ micros: 3_000_000n, signedAt: late }, { micros: 1_000_000n })
      expect(await balance()).toMatchObject({
        balanceUsdMicros: '4000000',
        consumedUsdMicros: '1000000',
      })
      await lateTicketsAreThrough()
      expect(await head()).toMatchObject({ overage: 0n, expired: 2_000_000n * micro })
      await expectSoundBooks()
    },
  )
})

/** Advances the clock past the time for late tickets, then sweeps. */
async function lateTicketsAreThrough(): Promise<void> {
  core.clock.advance(quarterHour)
  while ((await ledger.sweep(core.sql, core.clock.now())) > 0) {
    /* Users of the other tests. */
  }
}

describe('sweep', () => {
  it('books expired amounts of inactive users once', async () => {
    await spend({ micros: 1n })
    core.clock.advance(month + quarterHour)
    expect(await ledger.sweep(core.sql, core.clock.now())).toBeGreaterThan(0)
    expect(await head()).toMatchObject({ expired: 4_999_999n * micro, balance: 5_000_000n * micro })
    while ((await ledger.sweep(core.sql, core.clock.now())) > 0) {
      /* Users of the other tests. */
    }
    expect(await head()).toMatchObject({ expired: 4_999_999n * micro })
    await expectSoundBooks()
  })
})

describe('ledger tables', () => {
  const attempt = (sql: string, values: unknown[]) =>
    core.sql.query(sql, values).then(
      () => 'done',
      (error: Error) => error.message,
    )

  it('reject updates and deletes', async () => {
    await grant()
    const { userId: id } = await accountOf()
    const entries = [
      `update ledger_entries set amount_attos = 1 where user_id = $1`,
      `update ledger_entries set created_at = now() where user_id = $1`,
      `delete from ledger_entries where user_id = $1`,
    ]
    for (const sql of entries)
      expect(await attempt(sql, [id])).toBe('ledger_entries is append-only')
    const columns = [
      'app_id = gen_random_uuid()',
      'user_id = gen_random_uuid()',
      'id = gen_random_uuid()',
      `kind = 'grant'`,
      `source = 'promo'`,
      `feature_key = 'x'`,
      'amount_attos = amount_attos + 1',
      'priority = 1',
      'effective_at = now()',
      'expires_at = now()',
      'created_at = now()',
    ]
    for (const column of columns)
      expect(await attempt(`update grants set ${column} where user_id = $1`, [id])).toBe(
        'grants is append-only',
      )
    expect(await attempt(`delete from grants where user_id = $1`, [id])).toBe(
      'grants is append-only',
    )
    expect(await attempt(`delete from end_users where id = $1`, [id])).toMatch(/append-only/)
  })

  it('reject amounts that do not add up', async () => {
    const { userId: id } = await accountOf()
    expect(
      await attempt(`update balances set granted_attos = granted_attos + 1 where user_id = $1`, [
        id,
      ]),
    ).toMatch(/balances_add_up/)
    expect(
      await attempt(`update balances set balance_attos = -1 where user_id = $1`, [id]),
    ).toMatch(/balances_(not_negative|add_up)/)
    expect(
      await attempt(`update grants set remaining_attos = amount_attos + 1 where user_id = $1`, [
        id,
      ]),
    ).toMatch(/grants_remaining_within/)
    expect(
      await attempt(`update grants set remaining_attos = -1 where user_id = $1`, [id]),
    ).toMatch(/grants_remaining_within/)
  })

  it('have no index on columns that each charge changes', async () => {
    const { rows } = await core.sql.query(`
      select indexname
      from pg_indexes
      where tablename in ('grants', 'balances') and indexdef ~ '(_attos|seq|_hash|_through|updated_at)\\M'`)
    expect(rows).toEqual([])
  })

  const seed = Number(process.env['TEST_SEED'] ?? randomInt(2 ** 31 - 1))
  const users = ['ada', 'bob', 'eve']
  const user = fc.constantFrom(...users)
  const act = fc.oneof(
    fc.record({
      act: fc.constant('grant' as const),
      user,
      micros: fc.integer({ min: 1, max: 3_000_000 }),
      featureKey: fc.constantFrom(
        undefined,
        undefined,
        'text-to-image',
        'upscale:x4',
        'network_spend',
      ),
    }),
    fc.record({ act: fc.constant('read' as const), user }),
    fc.record({ act: fc.constant('sweep' as const) }),
    fc.record({
      act: fc.constant('charge' as const),
      tickets: fc.array(
        fc.record({
          user,
          attos: fc.bigInt({ min: 0n, max: 4n * 10n ** 18n }),
          ageMs: fc.integer({ min: -1_000, max: 40 * day }),
          pipeline: fc.constantFrom('text-to-image', 'upscale'),
          modelId: fc.constantFrom('sdxl', 'x4'),
        }),
        { minLength: 1, maxLength: 12 },
      ),
    }),
  )
  const move = fc.record({
    act: fc.constant('move' as const),
    seconds: fc.integer({ min: 1, max: 10 * 86_400 }),
  })
  type Act = typeof act extends fc.Arbitrary<infer T> ? T : never
  type Move = typeof move extends fc.Arbitrary<infer T> ? T : never
  const historyOf = <T>(acts: fc.Arbitrary<T>) =>
    fc.array(
      fc.record({
        advanceMs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 45 * day })),
        acts: fc.array(acts, { minLength: 1, maxLength: 8 }),
      }),
      { minLength: 1, maxLength: 8 },
    )
  interface Sums {
    readonly charged: Map<string, bigint>
    readonly granted: Map<string, bigint>
  }

  async function take(one: Act, { charged, granted }: Sums): Promise<void> {
    if (one.act === 'grant') {
      granted.set(one.user, (granted.get(one.user) ?? 0n) + BigInt(one.micros))
      await grant({
        externalUserId: one.user,
        amountUsdMicros: String(one.micros),
        featureKey: one.featureKey,
      })
    } else if (one.act === 'read') await allowance(one.user)
    else if (one.act === 'sweep') await ledger.sweep(core.sql, core.clock.now())
    else {
      for (const { user: of, attos } of one.tickets)
        charged.set(of, (charged.get(of) ?? 0n) + attos)
      await spend(
        ...one.tickets.map(({ user: of, ageMs, ...rest }) => ({
          of,
          ...rest,
          signedAt: new Date(core.clock.now().getTime() - ageMs),
        })),
      )
    }
  }

  async function moveClock({ seconds }: Move): Promise<void> {
    const operator = connectCore({ target: core.core.target, token: serviceToken })
    const request = { to: undefined, advanceSeconds: seconds }
    await operator.moveTestClock({ clientId: app.clientId, move: request })
    operator.close()
  }

  async function allConsumed(): Promise<Sums['charged']> {
    const heads = await Promise.all(users.map((name) => head(name)))
    return new Map(heads.map(({ consumed }, i) => [users[i] ?? '', consumed]))
  }

  async function expectFold({ granted }: Pick<Sums, 'granted'>): Promise<void> {
    await expectSoundBooks()
    for (const name of users) {
      expect(await topupOf(name)).toBe((granted.get(name) ?? 0n) * micro)
      const shown = await allowance(name)
      // Each figure is rounded down separately.
      const parts = [
        shown.balanceUsdMicros,
        ...shown.featureBalances.map((one) => one.balanceUsdMicros),
      ]
      const sum = parts.reduce((total, part) => total + BigInt(part), 0n)
      const whole = (await head(name)).balance / micro
      expect(whole - sum).toBeGreaterThanOrEqual(0n)
      expect(whole - sum).toBeLessThan(BigInt(parts.length))
      expect(shown.hasAccess).toBe(shown.remainingUsdMicros !== '0')
    }
  }

  /** Runs the acts of each step concurrently, in a new app. */
  async function runHistory(
    steps: readonly { readonly advanceMs: number; readonly acts: readonly (Act | Move)[] }[],
    options: AppOptions,
  ): Promise<Sums> {
    core.clock.set(begin)
    app = await core.newApp(options)
    m2m = core.as(app.basic)
    for (const externalUserId of users)
      await m2m.upsertUser({ clientId: app.clientId, externalUserId })
    const nothing = () => new Map(users.map((name) => [name, 0n]))
    const sums = { charged: nothing(), granted: nothing() }
    for (const { advanceMs, acts } of steps) {
      core.clock.advance(advanceMs)
      await Promise.all(acts.map((one) => (one.act === 'move' ? moveClock(one) : take(one, sums))))
    }
    return sums
  }

  it(`equal the sums of their entries after any concurrent history (TEST_SEED=${seed})`, async () => {
    await fc.assert(
      fc.asyncProperty(historyOf(act), async (steps) => {
        const sums = await runHistory(steps, {})
        await expectFold(sums)
        expect(await allConsumed()).toEqual(sums.charged)
      }),
      { seed, numRuns: 15 },
    )
  }, 120_000)

  it(`equal them while the clock of a test app is moved (TEST_SEED=${seed})`, async () => {
    const acts = fc.oneof({ weight: 5, arbitrary: act }, { weight: 1, arbitrary: move })
    await fc.assert(
      fc.asyncProperty(historyOf(acts), async (steps) => {
        const sums = await runHistory(steps, { isTest: true })
        await expectFold(sums)
        expect(await allConsumed()).toEqual(sums.charged)
      }),
      { seed, numRuns: 4 },
    )
  }, 120_000)
})

async function topupOf(externalUserId: string): Promise<bigint> {
  const { rows } = await core.sql.query<{ topup_attos: string }>(
    'select topup_attos from balances where user_id = $1',
    [(await accountOf(externalUserId)).userId],
  )
  return BigInt(rows[0]?.topup_attos ?? '-1')
}

/** Checks the invariants of every account in the database by SQL. Each query returns violations. */
async function expectSoundBooks(): Promise<void> {
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
