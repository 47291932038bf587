import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { atOnce, day, second } from '../../support.ts'
import {
  micro,
  month,
  quarterHour,
  core,
  app,
  m2m,
  ledger,
  grant,
  allowance,
  balance,
  accountOf,
  ticket,
  charge,
  spend,
  head,
  includedGrants,
  lateTicketsAreThrough,
  expectSoundBooks,
  setUpApp,
} from '../credit/world.ts'

setUpApp()

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
