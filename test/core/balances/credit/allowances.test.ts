import { describe, expect, it } from 'vitest'
import { atOnce, bearerOf, begin, outcome } from '../../support.ts'
import {
  month,
  core,
  app,
  m2m,
  openApp,
  grant,
  allowance,
  balance,
  spend,
  expectSoundBooks,
  setUpApp,
} from './world.ts'

setUpApp()

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
      canSpend: true,
      spendRefusal: '',
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
      canSpend: true,
      spendRefusal: '',
      unpricedTickets: '0',
    })
  })

  it('may be zero, so that grants are the only money', async () => {
    await openApp({ starterUsdMicros: '0' })
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
