import {
  type Arbitrary,
  array,
  assert,
  asyncProperty,
  constant,
  constantFrom,
  integer,
  nat,
  oneof,
  record,
} from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCore } from '../../../../deploy/cli/client.ts'
import type { Balance } from '../../../../proto/gen/ts-proto/tollgate/balances/v1/allowances.ts'
import { type Rpcs, begin, bearerOf, day, outcome, refusal, serviceToken } from '../../support.ts'
import { type BooksWorld, startBooks, tollgate } from '../../books/support.ts'

const seed = 4_711
const minute = 60_000
let world: BooksWorld
let core: ReturnType<typeof connectCore>
let m2m: Rpcs
let users = 0
beforeAll(async () => {
  world = await startBooks()
  core = connectCore({ target: world.core.target, token: serviceToken })
  m2m = world.as(world.app.basic)
})
afterAll(async () => {
  core.close()
  await world.stop()
})

const who = (user: string) => ({ clientId: world.app.clientId, externalUserId: user })
const balance = async (user: string, asOf?: string) =>
  (await m2m.getBalance({ ...who(user), asOf })).balance
const at = () => world.clock.now().toISOString()

async function newUser(): Promise<string> {
  const user = `user-${users++}`
  await m2m.upsertUser(who(user))
  return user
}

const pass = (milliseconds: number): void => world.clock.advance(milliseconds)

type Step =
  | { readonly do: 'grant'; readonly micros: number }
  | { readonly do: 'spend'; readonly micros: number; readonly pipeline: string }
  | { readonly do: 'adjust'; readonly micros: number }
  | { readonly do: 'wait'; readonly minutes: number }
  | { readonly do: 'late'; readonly micros: number; readonly minutes: number }
  | { readonly do: 'bind'; readonly micros: number; readonly featureKey: string }

/** Features that money may be bound to. The last one is all spend. */
const features = ['live', 'text-to-image', 'text-to-image:other', 'network_spend']

const steps: Arbitrary<Step[]> = array(
  oneof(
    record({ do: constant('grant' as const), micros: integer({ min: 1, max: 9_000_000 }) }),
    record({
      do: constant('spend' as const),
      micros: nat(6_000_000),
      pipeline: constantFrom('live', 'text-to-image'),
    }),
    record({
      do: constant('adjust' as const),
      micros: integer({ min: -3_000_000, max: 3_000_000 }).filter((micros) => micros !== 0),
    }),
    record({ do: constant('wait' as const), minutes: oneof(nat(20), nat(60 * 24 * 50)) }),
    record({
      do: constant('late' as const),
      micros: nat(7_000_003),
      minutes: oneof(nat(20), nat(60 * 24 * 50)),
    }),
    record({
      do: constant('bind' as const),
      micros: integer({ min: 1, max: 3_000_007 }),
      featureKey: constantFrom(...features),
    }),
  ),
  { minLength: 3, maxLength: 14 },
)

async function take(user: string, step: Step, turn: number): Promise<void> {
  pass(1 + turn)
  if (step.do === 'wait') return pass(step.minutes * minute)
  if (step.do === 'grant')
    return void (await m2m.createGrant({ ...who(user), amountUsdMicros: String(step.micros) }))
  if (step.do === 'bind') {
    const bound = { amountUsdMicros: String(step.micros), featureKey: step.featureKey }
    return void (await m2m.createGrant({ ...who(user), ...bound }))
  }
  if (step.do === 'spend' || step.do === 'late') {
    const signed = world.clock.now().getTime() - (step.do === 'late' ? step.minutes * minute : 0)
    // A micro is a third of 10^9 wei. The fee is rounded up to a whole wei.
    const fee = (BigInt(step.micros) * 10n ** 9n + 2n) / 3n
    return void (await world.ingest({
      auth_id: `${world.app.clientId}:${user}`,
      computed_fee: String(fee),
      current_time: new Date(signed).toISOString(),
      session_id: user,
      sequence_number: turn,
      pipeline: step.do === 'spend' ? step.pipeline : 'live',
    }))
  }
  await core.allowances.createAdjustment({
    ...who(user),
    amountUsdMicros: String(step.micros),
    reason: 'r',
    author: 'a',
    eventId: undefined,
    uncovered: 'overage',
    idempotencyKey: undefined,
  })
}

describe('getBalance with asOf', () => {
  it('returns the balance of that time, and the live balance for the present', async () => {
    await assert(
      asyncProperty(steps, async (history) => {
        const user = await newUser()
        const read: { asOf: string; answered: object }[] = []
        const between: { asOf: string; answered: Balance | undefined }[] = []
        for (const [turn, step] of history.entries()) {
          await take(user, step, turn)
          const answered = {
            ...(await balance(user)),
            canSpend: undefined,
            spendRefusal: undefined,
          }
          read.push({ asOf: at(), answered })
          expect(await balance(user, at())).toEqual({ ...answered, asOf: at() })
          // An instant without a booking, requested for the first time after it has passed.
          pass(7)
          const asOf = new Date(world.clock.now().getTime() - 3).toISOString()
          between.push({ asOf, answered: await balance(user, asOf) })
          for (const earlier of between)
            expect(await balance(user, earlier.asOf)).toEqual(earlier.answered)
        }
        pass(1)
        for (const { asOf, answered } of read)
          expect(await balance(user, asOf)).toEqual({ ...answered, asOf })
      }),
      { numRuns: 25, seed },
    )
  }, 120_000)

  it('changes with an entry at its booking time', async () => {
    const user = await newUser()
    const came = at()
    pass(minute)
    await m2m.createGrant({ ...who(user), amountUsdMicros: '250000' })
    const granted = world.clock.now()
    pass(minute)
    expect(await balance(user, came)).toMatchObject({
      balanceUsdMicros: '5000000',
      lifetimeGrantedUsdMicros: '5000000',
    })
    expect(await balance(user, new Date(granted.getTime() - 1).toISOString())).toMatchObject({
      balanceUsdMicros: '5000000',
    })
    expect(await balance(user, granted.toISOString())).toMatchObject({
      balanceUsdMicros: '5250000',
      lifetimeGrantedUsdMicros: '5250000',
    })
    // The same instant, in another zone.
    const [date, time] = new Date(granted.getTime() + 2 * 60 * minute)
      .toISOString()
      .replace('Z', '')
      .split('T')
    expect(await balance(user, `${date}T${time}+02:00`)).toMatchObject({
      balanceUsdMicros: '5250000',
      asOf: granted.toISOString(),
    })
  })

  it('counts a ticket from when it was booked, not from when it was signed', async () => {
    const user = await newUser()
    const signed = at()
    pass(5 * minute)
    await world.ingest({
      auth_id: `${world.app.clientId}:${user}`,
      computed_fee: '1000000000000000',
      current_time: signed,
      session_id: user,
    })
    const booked = at()
    pass(1)
    expect(await balance(user, signed)).toMatchObject({
      balanceUsdMicros: '5000000',
      consumedUsdMicros: '0',
    })
    expect(await balance(user, booked)).toMatchObject({
      balanceUsdMicros: '2000000',
      consumedUsdMicros: '3000000',
    })
  })

  it('stays unchanged after a late ticket of an ended period', async () => {
    const user = await newUser()
    const signed = new Date(world.clock.now().getTime() + 5 * day).toISOString()
    pass(32 * day)
    const asOf = at()
    expect(await balance(user)).toMatchObject({ balanceUsdMicros: '5000000' })
    pass(day)
    const answered = await balance(user, asOf)
    await world.ingest({
      auth_id: `${world.app.clientId}:${user}`,
      computed_fee: '1000000000000000',
      current_time: signed,
      session_id: user,
    })
    pass(1)
    expect(await balance(user, asOf)).toEqual(answered)
    expect(answered).toMatchObject({ balanceUsdMicros: '5000000' })
  })

  it('stays unchanged after a booking by a clock that is behind', async () => {
    const user = await newUser()
    pass(minute)
    const asOf = new Date(world.clock.now().getTime() - 1).toISOString()
    const answered = await balance(user, asOf)
    world.clock.advance(-minute)
    await m2m.createGrant({ ...who(user), amountUsdMicros: '17' })
    world.clock.advance(minute)
    expect(await balance(user, asOf)).toEqual(answered)
    expect(await balance(user)).toMatchObject({ balanceUsdMicros: '5000017' })
  })

  it('ends included usage with its period, booked or not', async () => {
    const user = await newUser()
    const start = world.clock.now().getTime()
    pass(70 * day)
    const between = new Date(start + 45 * day).toISOString()
    // The second period had not been entered by then, so by booking time there was no money.
    expect(await balance(user, between)).toMatchObject({
      balanceUsdMicros: '0',
      hasAccess: false,
      lifetimeGrantedUsdMicros: '0',
    })
    expect(await balance(user)).toMatchObject({ balanceUsdMicros: '5000000' })
    expect(await balance(user, between)).toMatchObject({ balanceUsdMicros: '0' })
    expect(await balance(user, new Date(start + 20 * day).toISOString())).toMatchObject({
      balanceUsdMicros: '5000000',
    })
  })

  it('rejects malformed and future instants, and those before the user existed', async () => {
    const user = await newUser()
    pass(1)
    expect(await outcome(m2m.getBalance({ ...who(user), asOf: begin.toISOString() }))).toBe(
      'NOT_FOUND',
    )
    expect(
      (
        await refusal(
          m2m.getBalance({
            ...who(user),
            asOf: new Date(world.clock.now().getTime() + 1).toISOString(),
          }),
        )
      ).message,
    ).toBe('asOf must not be in the future')
    for (const asOf of [
      '',
      'now',
      '2026-02-30T00:00:00Z',
      '2026-03-10',
      '2026-03-10T12:00:00',
      '1773144000',
    ]) {
      expect(await outcome(m2m.getBalance({ ...who(user), asOf }))).toBe('REQUEST_INVALID')
    }
    expect(await outcome(m2m.getBalance({ ...who('nobody'), asOf: at() }))).toBe('NOT_FOUND')
  })

  it('returns users their own balance', async () => {
    const user = await newUser()
    const came = at()
    const { accessToken } = await m2m.mintUserToken(who(user))
    pass(1)
    await m2m.createGrant({ ...who(user), amountUsdMicros: '1' })
    const own = world.as(bearerOf(accessToken))
    expect((await own.getOwnBalance({ asOf: came })).balance).toMatchObject({
      externalUserId: user,
      balanceUsdMicros: '5000000',
      asOf: came,
    })
    expect((await own.getOwnBalance()).balance).toMatchObject({ balanceUsdMicros: '5000001' })
  })

  it('leaves books that pass verify', async () => {
    await tollgate('rebuild')
    expect((await tollgate('verify')).text).toContain('the books are right')
  })
})
