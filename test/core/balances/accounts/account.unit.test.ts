import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type Account,
  addCredit,
  enterPeriod,
  expire,
  newAccount,
} from '../../../../core/balances/accounts/account.ts'
import {
  type Credit,
  activeAt,
  freeAt,
  remainingAt,
  unheldAt,
} from '../../../../core/balances/accounts/credits.ts'
import { adjust, isNeededByHolds } from '../../../../core/balances/accounts/adjusting.ts'
import { burn } from '../../../../core/balances/accounts/burning.ts'
import {
  type TicketCharge,
  type UserCharge,
  userCharges,
} from '../../../../core/metering/ingest/charges.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'
import { usdAttos } from '../../../../core/lib/money.ts'

const start = new Date('2026-01-01T00:00:00Z')
const minutes = (count: number) => new Date(start.getTime() + count * 60_000)
const account = (): Account => ({
  ...newAccount({ appId: appId('a'), userId: userId('u') }),
  periodStart: start,
  periodEnd: minutes(1000),
  periodCountsFrom: start,
})

const creditOf = (id: string, amount: bigint, more: Partial<Credit> = {}): Credit => ({
  id,
  kind: 'grant',
  source: 'manual',
  featureKey: null,
  amount: usdAttos(amount),
  remaining: usdAttos(amount),
  priority: 10,
  effectiveAt: start,
  expiresAt: null,
  expiredAt: null,
  createdAt: start,
  state: 'new',
  ...more,
})

const ticket = (cost: bigint, more: Partial<TicketCharge> = {}): TicketCharge => ({
  appId: appId('a'),
  userId: userId('u'),
  eventId: `e${cost}`,
  signedAt: minutes(1),
  pipeline: 'live',
  modelId: 'm',
  cost: usdAttos(cost),
  ...more,
})

const booking = { id: 'c', at: minutes(2), ratesKnownAt: null }
const noTerms = {
  planId: 'p',
  planVersion: 1,
  includedAttos: 0n,
  withheldAttos: 0n,
  priceAttos: 0n,
}

function charge(of: Account, ...tickets: TicketCharge[]): void {
  for (const charged of userCharges(tickets)) burn(of, { ...charged, ...booking })
}
const left = (of: Account) =>
  Object.fromEntries(of.credits.map((credit) => [credit.id, credit.remaining]))

describe('burn', () => {
  it('takes included usage first, then by priority, expiry, creation and id', () => {
    const a = account()
    addCredit(a, creditOf('late', 10n, { expiresAt: minutes(900) }), start)
    addCredit(a, creditOf('never', 10n), start)
    addCredit(a, creditOf('soon', 10n, { expiresAt: minutes(500) }), start)
    addCredit(a, creditOf('first', 10n, { priority: 1 }), start)
    addCredit(
      a,
      creditOf('included', 10n, { kind: 'included', priority: 0, expiresAt: minutes(1000) }),
      start,
    )
    charge(a, ticket(15n))
    expect(left(a)).toEqual({ included: 0n, first: 5n, soon: 10n, late: 10n, never: 10n })
    charge(a, ticket(22n))
    expect(left(a)).toEqual({ included: 0n, first: 0n, soon: 0n, late: 3n, never: 10n })
  })

  it('books uncovered cost as overage and keeps the balance at zero', () => {
    const a = account()
    addCredit(a, creditOf('g', 5n), start)
    charge(a, ticket(6n))
    expect(a).toMatchObject({ balance: 0n, overage: 1n, consumed: 6n })
    expect(a.entries.at(-1)).toMatchObject({
      kind: 'charge',
      amount: -5n,
      overage: 1n,
      balanceAfter: 0n,
    })
  })

  it('lets a feature-bound credit pay only for its feature', () => {
    const a = account()
    addCredit(a, creditOf('model', 10n, { featureKey: 'live:sdxl', priority: 1 }), start)
    addCredit(a, creditOf('pipeline', 10n, { featureKey: 'live', priority: 2 }), start)
    addCredit(a, creditOf('all', 10n, { featureKey: 'network_spend' }), start)
    charge(a, ticket(4n, { modelId: 'other' }))
    charge(a, ticket(4n, { modelId: 'sdxl' }))
    charge(a, ticket(4n, { pipeline: 'fixed' }))
    expect(left(a)).toEqual({ model: 6n, pipeline: 6n, all: 6n })
  })

  it("checks a credit's expiry by the signing time of the ticket", () => {
    const a = account()
    addCredit(a, creditOf('short', 10n, { expiresAt: minutes(2) }), start)
    charge(
      a,
      ticket(3n, { signedAt: minutes(1) }),
      ticket(3n, { signedAt: minutes(2), eventId: 'after' }),
    )
    expect(left(a)).toEqual({ short: 7n })
    expect(a.overage).toBe(3n)
  })

  it('does not let included usage pay for another period', () => {
    const a = account()
    addCredit(a, creditOf('january', 10n, { kind: 'included', expiresAt: minutes(1000) }), start)
    enterPeriod(a, {
      start: minutes(1000),
      end: minutes(2000),
      enteredAt: minutes(1000),
      terms: noTerms,
    })
    addCredit(
      a,
      creditOf('february', 10n, {
        kind: 'included',
        effectiveAt: minutes(1000),
        expiresAt: minutes(2000),
      }),
      minutes(1000),
    )
    charge(
      a,
      ticket(4n, { signedAt: minutes(999) }),
      ticket(4n, { signedAt: minutes(1000), eventId: 'new' }),
    )
    expire(a, { until: minutes(1001), at: minutes(1001) })
    expect(left(a)).toEqual({ january: 0n, february: 6n })
    expect(a).toMatchObject({ expired: 6n, periodConsumed: 4n, balance: 6n })
  })
})

describe('an account after a random history', () => {
  const steps = fc.array(
    fc.oneof(
      fc.record({
        do: fc.constant('credit' as const),
        amount: fc.bigInt({ min: 1n, max: 10n ** 20n }),
        minutes: fc.option(fc.nat(200)),
        included: fc.boolean(),
        feature: fc.constantFrom(null, 'live', 'fixed'),
      }),
      fc.record({
        do: fc.constant('burn' as const),
        costs: fc.array(fc.bigInt({ min: 0n, max: 10n ** 20n }), { minLength: 1, maxLength: 5 }),
        at: fc.nat(200),
      }),
      fc.record({ do: fc.constant('expire' as const), at: fc.nat(200) }),
      fc.record({
        do: fc.constant('adjust' as const),
        at: fc.nat(200),
        amount: fc
          .bigInt({ min: -(10n ** 20n), max: 10n ** 20n })
          .filter((amount) => amount !== 0n),
        feature: fc.constantFrom(null, { pipeline: 'live', modelId: 'm' }),
      }),
    ),
    { maxLength: 30 },
  )

  function play(history: typeof steps extends fc.Arbitrary<infer T> ? T : never): Account {
    const a = account()
    history.forEach((step, index) => {
      if (step.do === 'credit') {
        addCredit(
          a,
          creditOf(`g${index}`, step.amount, {
            kind: step.included ? 'included' : 'grant',
            expiresAt: step.minutes === null ? null : minutes(step.minutes),
            featureKey: step.feature,
          }),
          start,
        )
      } else if (step.do === 'burn') {
        charge(
          a,
          ...step.costs.map((cost, i) =>
            ticket(cost, { eventId: `${index}.${i}`, signedAt: minutes(step.at) }),
          ),
        )
      } else if (step.do === 'adjust') {
        adjust(a, {
          id: `a${index}`,
          amount: usdAttos(step.amount),
          at: minutes(step.at),
          feature: step.feature,
        })
      } else expire(a, { until: minutes(step.at), at: minutes(step.at) })
    })
    return a
  }

  it('keeps granted + adjusted = balance + (consumed - overage) + expired, to the atto-dollar', () => {
    fc.assert(
      fc.property(steps, (history) => {
        const a = play(history)
        const adjusted = history.reduce(
          (sum, step) => sum + (step.do === 'adjust' ? step.amount : 0n),
          0n,
        )
        expect(a.granted + adjusted).toBe(a.balance + (a.consumed - a.overage) + a.expired)
      }),
    )
  })

  it('has a balance equal to its entries and its credits, and no gap in its numbers', () => {
    fc.assert(
      fc.property(steps, (history) => {
        const a = play(history)
        expect(a.entries.reduce((sum, entry) => sum + entry.amount, 0n)).toBe(a.balance)
        expect(a.credits.reduce((sum, credit) => sum + credit.remaining, 0n)).toBe(a.balance)
        expect(a.entries.map((entry) => entry.seq)).toEqual(
          a.entries.map((_, index) => BigInt(index + 1)),
        )
        for (const entry of a.entries) expect(entry.balanceAfter >= 0n).toBe(true)
      }),
    )
  })

  it('never has more in effect than its balance', () => {
    fc.assert(
      fc.property(steps, fc.nat(200), (history, at) => {
        const a = play(history)
        expect(remainingAt(a.credits, minutes(at)) <= a.balance).toBe(true)
        expect(activeAt(a.credits, minutes(at)).every((credit) => credit.expiredAt === null)).toBe(
          true,
        )
      }),
    )
  })
})

describe('burn with several tickets', () => {
  const instants = fc.nat(20)
  const features = fc.constantFrom<(string | null)[]>(null, null, null, 'network_spend', 'live')
  const credits = fc.array(
    fc.record({
      amount: fc.bigInt({ min: 1n, max: 100n }),
      included: fc.boolean(),
      from: instants,
      until: fc.option(instants),
      feature: features,
    }),
    { maxLength: 5 },
  )
  const tickets = fc.array(
    fc.record({
      cost: fc.bigInt({ min: 0n, max: 60n }),
      at: instants,
      pipeline: fc.constantFrom('live', 'fixed'),
    }),
    { minLength: 1, maxLength: 8 },
  )

  const never = (): never => {
    throw new Error('the tickets should burn as one')
  }

  function after(
    terms: typeof credits extends fc.Arbitrary<infer T> ? T : never,
    periodFrom: number,
    charged: UserCharge,
  ): Account {
    const a = account()
    enterPeriod(a, {
      start: minutes(periodFrom),
      end: minutes(1000),
      enteredAt: start,
      terms: noTerms,
    })
    terms.forEach(({ amount, included, from, until, feature }, i) =>
      addCredit(
        a,
        creditOf(`g${i}`, amount, {
          kind: included ? 'included' : 'grant',
          effectiveAt: minutes(included ? from : 0),
          featureKey: included ? null : feature,
          expiresAt: until === null ? null : minutes(until),
        }),
        start,
      ),
    )
    burn(a, { ...charged, ...booking })
    return a
  }

  it('burns tickets as one with the same result as one by one', () => {
    fc.assert(
      fc.property(credits, tickets, instants, (terms, many, periodFrom) => {
        const [charged] = userCharges(
          many.map(({ cost, at, pipeline }, i) =>
            ticket(cost, { eventId: `e${i}`, signedAt: minutes(at), pipeline }),
          ),
        )
        if (!charged) throw new Error('no charge')
        // The added credit ends between the tickets and is bound to a feature, so nothing burns as
        // one.
        const oneByOne = { ...charged, from: new Date(0), to: minutes(10_000) }
        const mixed = [
          ...terms,
          { amount: 1n, included: false, from: 0, until: 5_000, feature: 'nothing' },
        ]
        const [asOne, oneByOneResult] = [
          after(terms, periodFrom, charged),
          after(mixed, periodFrom, oneByOne),
        ]
        oneByOneResult.credits.splice(
          oneByOneResult.credits.findIndex(({ featureKey }) => featureKey === 'nothing'),
          1,
        )
        expect(asOne.credits.map(({ id, remaining, state }) => ({ id, remaining, state }))).toEqual(
          oneByOneResult.credits.map(({ id, remaining, state }) => ({ id, remaining, state })),
        )
        for (const figure of ['consumed', 'overage', 'periodConsumed'] as const)
          expect(asOne[figure]).toBe(oneByOneResult[figure])
        expect(asOne.entries.at(-1)?.amount).toBe(oneByOneResult.entries.at(-1)?.amount)
      }),
      { numRuns: 2_000 },
    )
  })

  it('does not list the tickets when every credit pays for all tickets', () => {
    const [charged] = userCharges([
      ticket(3n),
      ticket(4n, { eventId: 'other', signedAt: minutes(5), pipeline: 'fixed' }),
    ])
    if (!charged) throw new Error('no charge')
    const a = after([{ amount: 10n, included: true, from: 0, until: 900, feature: null }], 0, {
      ...charged,
      each: never,
    })
    expect(left(a)).toEqual({ g0: 3n })
    expect(a).toMatchObject({ consumed: 7n, periodConsumed: 7n })
  })
})

describe('expire', () => {
  const included = (id: string, from: number, more: Partial<Credit> = {}): Credit =>
    creditOf(id, 100n, {
      kind: 'included',
      priority: 0,
      effectiveAt: minutes(from),
      expiresAt: minutes(from + 60),
      ...more,
    })
  const until = { until: minutes(90), at: minutes(90) }

  it('keeps an ended credit while calls from before its end hold money', () => {
    const held = { ...account(), pending: usdAttos(60n), credits: [included('a', 0)] }
    expire(held, until)
    expect(held.credits[0]).toMatchObject({ remaining: 100n, expiredAt: null })
  })

  it('expires an ended credit when other credits cover the holds', () => {
    const covered = {
      ...account(),
      pending: usdAttos(60n),
      credits: [included('a', 0), creditOf('b', 60n)],
    }
    expire(covered, until)
    expect(covered.credits[0]).toMatchObject({ remaining: 0n, expiredAt: minutes(90) })
  })

  it('does not count the included usage of the next period, which cannot pay for earlier calls', () => {
    const rolled = {
      ...account(),
      pending: usdAttos(60n),
      credits: [included('a', 0), included('b', 60)],
    }
    expire(rolled, until)
    expect(rolled.credits[0]).toMatchObject({ remaining: 100n, expiredAt: null })
  })
})

describe('held money', () => {
  const holding = (lent: bigint, pending: bigint): Account => {
    const a = account()
    addCredit(a, creditOf('lasting', 10n), start)
    addCredit(a, creditOf('ending', 20n, { expiresAt: minutes(10) }), start)
    addCredit(a, creditOf('bound', 40n, { featureKey: 'live' }), start)
    a.lent = usdAttos(lent)
    a.pending = usdAttos(pending)
    return a
  }

  it('is not free, like money that ends before the call is signed or is bound to a feature', () => {
    const times = (until: number) => ({ at: minutes(1), until: minutes(until) })
    expect(freeAt(holding(3n, 4n), times(2))).toBe(23n)
    expect(freeAt(holding(3n, 4n), times(11))).toBe(3n)
    // The signer's clock may be 5 s ahead.
    expect(freeAt(holding(3n, 4n), { at: minutes(1), until: minutes(9.95) })).toBe(3n)
    expect(freeAt(holding(8n, 4n), times(11))).toBe(0n)
    expect(unheldAt(holding(3n, 4n), minutes(1))).toBe(23n)
  })

  it('is never taken by a debit', () => {
    const a = holding(15n, 10n)
    const debit = { id: 'd', amount: usdAttos(-100n), at: minutes(1) }
    expect(adjust(a, { ...debit, feature: null })).toBe(95n)
    expect(a.balance).toBe(65n)
    expect(adjust(a, { ...debit, feature: { pipeline: 'live', modelId: 'm' } })).toBe(60n)
    expect(a.balance).toBe(25n)
    expect(unheldAt(a, minutes(1))).toBe(0n)
  })

  it('delays a debit from a credit that the holds need', () => {
    const a = holding(15n, 10n)
    const debit = { creditId: 'ending', amount: usdAttos(6n), at: minutes(1) }
    expect(isNeededByHolds(a, debit)).toBe(true)
    expect(isNeededByHolds(a, { ...debit, amount: usdAttos(5n) })).toBe(false)
    expect(isNeededByHolds(a, { ...debit, creditId: 'gone' })).toBe(false)
    a.lent = usdAttos(0n)
    expect(isNeededByHolds(a, debit)).toBe(false)
  })

  it('lets a debit draw from one credit only', () => {
    const a = holding(0n, 0n)
    const debit = { id: 'd', amount: usdAttos(-25n), at: minutes(1), feature: null }
    expect(adjust(a, { ...debit, creditId: 'ending' })).toBe(5n)
    expect(left(a)).toMatchObject({ ending: 0n, lasting: 10n, bound: 40n })
  })

  it('keeps a credit from expiring while tickets for its calls may come', () => {
    const a = holding(5n, 10n)
    const ends = { until: minutes(30), at: minutes(30) }
    expire(a, ends)
    expect(left(a)).toMatchObject({ ending: 20n })
    a.lent = usdAttos(0n)
    expire(a, ends)
    expect(left(a)).toMatchObject({ ending: 0n, lasting: 10n })
  })
})
