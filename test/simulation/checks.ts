import assert from 'node:assert/strict'
import type { Account } from '../../core/balances/accounts/account.ts'
import { burn } from '../../core/balances/accounts/burning.ts'
import { creditLine } from '../../core/balances/accounts/credit-line.ts'
import { freeAt } from '../../core/balances/accounts/credits.ts'
import { pay } from '../../core/balances/accounts/paying.ts'
import { knownUntil, toContact } from '../../core/balances/escrow/reports/contact.ts'
import { clockRange } from '../../core/balances/escrow/due.ts'
import { createLeases } from '../../core/balances/escrow/leases.ts'
import { type LendCall, lendTo } from '../../core/balances/escrow/granting/lending.ts'
import type { Lease, NewAuthorisation } from '../../core/balances/escrow/port.ts'
import { createRelease } from '../../core/balances/escrow/release.ts'
import { bookedThrough, moveBound, takeBack } from '../../core/balances/escrow/reports/reporting.ts'
import { lowerLeases } from '../../core/balances/escrow/settlement.ts'
import { createExposures } from '../../core/balances/exposure/exposure.ts'
import { createLedger } from '../../core/balances/ledger/ledger.ts'
import { networkRatio, usdAttos } from '../../core/lib/money.ts'
import { userCharges } from '../../core/metering/ingest/charges.ts'
import { appId, userId } from '../../core/shared/ids.ts'
import { type CallRun, createSessionMemory } from '../../sidecar/wallets/session-calls.ts'
import { groupByUser } from '../../sidecar/wallets/report-entries.ts'

/**
 * Cases that random histories seldom reach. Each has the name of the defect in
 * `source-mutations.ts` that it finds. A check that fails throws an AssertionError.
 */
export const checks: Readonly<Record<string, () => void | Promise<void>>> = {
  'frees usage that was not reported when a lease is returned': () => {
    const [account, lease] = [accountWith(100n, { lent: usd(10n) }), leaseOf(10n)]
    const returned = { ...user, leaseId: lease.id, used: usd(4n) }
    const free = takeBack(returned, { account, leases: createLeases([lease]) })
    assert.deepEqual([free, account.lent], [usd(6n), usd(4n)])
  },

  'ends leases at core without a grace': () => {
    const account = accountWith(100n)
    const leases = createLeases([])
    const { lease } = lendTo(lendCall(), { ...situation, account, leases })
    const endsAt = leases.list(user.userId)[0]?.endsAt.getTime() ?? 0
    // The sidecar stops 2 s early, and the signer waits 5 s for an answer.
    assert.ok(lease && endsAt >= at.getTime() + (lease.seconds - 2 + 5) * 1_000)
  },

  'renews a lease that was recalled': () => {
    const [account, own] = [accountWith(100n, { lent: usd(10n) }), leaseOf(10n)]
    own.recalledAt = seconds(-20)
    const leases = createLeases([own])
    assert.equal(lendTo(lendCall(), { ...situation, account, leases }).lease, null)
  },

  'renews a lease that has ended': () => {
    const [account, own] = [accountWith(100n, { lent: usd(10n) }), leaseOf(10n)]
    own.endsAt = at
    const leases = createLeases([own])
    assert.equal(lendTo(lendCall(), { ...situation, account, leases }).lease, null)
  },

  'believes what was used of another lease': () => {
    const [account, own] = [accountWith(100n, { lent: usd(40n) }), leaseOf(40n)]
    const leases = createLeases([own])
    const call = { ...lendCall(), leaseId: 'another', used: usd(40n) }
    const { raise } = lendTo(call, { ...situation, account, leases })
    // A quarter of 100 is less than core's figure for the remaining amount of the lease.
    assert.deepEqual([raise, account.lent], [usd(0n), usd(40n)])
  },

  'lends to a user whose money was just recalled': () => {
    const account = accountWith(100n, { lendAfter: seconds(1) })
    const leases = createLeases([])
    assert.equal(lendTo(lendCall(), { ...situation, account, leases }).lease, null)
  },

  'keeps the ratio of a lease that only serves until its end': () => {
    const account = accountWith(100n, { lent: usd(10n) }, { expiresAt: seconds(30) })
    const own = leaseOf(10n)
    own.endsAt = seconds(29)
    const lower = { ...situation, retailRatio: networkRatio / 2n }
    const { lease } = lendTo(lendCall(), { ...lower, account, leases: createLeases([own]) })
    assert.deepEqual([lease?.seconds, own.retailRatio], [23, lower.retailRatio])
  },

  'lends from credit that ends before the lease': () => {
    const account = accountWith(100n, {}, { expiresAt: seconds(30) })
    const leases = createLeases([])
    assert.equal(lendTo(lendCall(), { ...situation, account, leases }).lease, null)
  },

  'holds only what the lease still has': () => {
    const [account, lease] = [accountWith(100n, { lent: usd(1n) }), leaseOf(1n)]
    const calls = { ...user, leaseId: lease.id, bound: usd(3n) }
    moveBound(calls, calls.bound, { account, leases: createLeases([lease]) })
    assert.deepEqual([account.lent, account.pending], [usd(0n), usd(3n)])
  },

  'does not lower orphans by tickets': () => {
    const [account, lease] = [accountWith(100n, { lent: usd(10n) }), leaseOf(10n)]
    assert.deepEqual(lowerLeases(account, [lease], usd(4n)), [lease])
    assert.equal(account.lent, usd(6n))
  },

  'releases right after a jump of the clock': async () => {
    const searches: Date[] = []
    const search = (passed: number): Promise<void> =>
      createRelease({
        store: {
          findDueUsers: async (_: unknown, due: { at: Date }) => (searches.push(due.at), []),
          forgetClocksAfter: async () => {},
          forgetOld: async () => {},
        },
        time: { measure: async () => {}, now: () => seconds(passed), jumpedAt: () => at },
        leaseSeconds: situation.leaseSeconds,
        lagSeconds: 20,
        holdMaxSeconds: 900,
      } as never).round()
    for (const passed of [0, 57, 58]) await search(passed)
    assert.deepEqual(searches, [seconds(58)])
  },

  'believes a stream clock that is later than now': () => {
    const due = { at, lagSeconds: 20, holdMaxSeconds: 900, jumpedAt: new Date(0), limit: 1 }
    assert.ok(clockRange(due).to < seconds(2))
  },

  'reports the first bound for all calls of a run': () => {
    const run = {
      kind: 'calls',
      account: { clientId: 'app', externalUserId: 'user' },
      seconds: [1, 2],
      nanos: [0, 0],
      bounds: [3, 4],
      sequence: 1,
      firstAt: 0,
      lastAt: 0,
    } as unknown as CallRun
    assert.deepEqual(groupByUser([run], 0)[0]?.sessions[0]?.boundUsdNanos, [3n, 4n])
  },

  'moves the stream clock past calls of a run that are open': () => {
    const authorisation = { authorisedAt: at, lastAt: seconds(9) } as NewAuthorisation
    assert.deepEqual(bookedThrough({ authorisation, held: authorisation }), at)
    assert.deepEqual(bookedThrough({ authorisation, held: null }), seconds(9))
  },

  'takes a process that waits with its reports to have none': () => {
    const contact = toContact({ unreportedMs: 8_000, sharedThrough: seconds(-20) }, at)
    assert.deepEqual(knownUntil(contact, seconds(-10)), seconds(-8))
  },

  'takes a process to know of a session that was just joined': () => {
    const contact = toContact({ unreportedMs: 8_000, sharedThrough: seconds(-20) }, at)
    assert.deepEqual(
      [-20, -19].map((joined) => knownUntil(contact, seconds(joined))),
      [at, seconds(-8)],
    )
  },

  'counts the bound from the last call with a number': () => {
    const memory = createSessionMemory({ max: 8 })
    const owner = { authId: 'app:user', latest: null }
    for (const at of [10, 5, 7])
      memory.remember(owner, { id: 's', sequence: 1, seconds: at, nanos: 0 } as never)
    assert.equal(memory.find(owner, 's')?.top.seconds, 5)
  },

  'pays for tickets with included usage of a later period': () => {
    const account = accountWith(100n, {}, { kind: 'included', effectiveAt: seconds(0) })
    const ticket = {
      ...user,
      eventId: 'e',
      signedAt: seconds(-1),
      pipeline: 'p',
      modelId: 'm',
      cost: usd(3n),
    }
    for (const charge of userCharges([ticket]))
      burn(account, { ...charge, id: 'c', at, ratesKnownAt: null })
    assert.deepEqual([account.overage, account.balance], [usd(3n), usd(100n)])
  },

  'takes no debt back with a refund': () => {
    const account = accountWith(0n, { overage: usd(5n), collected: usd(5n), ceiling: usd(8n) })
    const isLess = pay(account, { amount: usd(-2n), causeId: 'refund', at })
    assert.deepEqual([isLess, creditLine(account)], [true, usd(6n)])
  },

  'raises the ceiling by an overpayment': () => {
    const account = accountWith(0n, { overage: usd(1n), collected: usd(4n), ceiling: usd(8n) })
    assert.equal(creditLine(account), usd(8n))
  },

  'does not recall leases when a ceiling is lowered': async () => {
    const [account, lease] = [accountWith(0n, { lent: usd(2n), ceiling: usd(8n) }), leaseOf(2n)]
    const escrow = { findLeases: async () => [lease], saveLeases: async () => {} }
    const ledger = createLedger({ escrow: escrow as never })
    const ceiling = { amount: usd(1n), lacksCard: false }
    const isRecalled = await ledger.setCeiling({} as never, account, { ceiling, at })
    assert.deepEqual([isRecalled, lease.recalledAt], [true, at])
  },

  'keeps leases that the owner can no longer pay': () => {
    const [account, own] = [accountWith(100n, { lent: usd(10n) }), leaseOf(10n)]
    const room = roomOf(usd(9n), usd(10n))
    const answer = lendTo(lendCall(), { ...situation, account, leases: createLeases([own]), room })
    assert.deepEqual([answer.lease, own.recalledAt], [null, at])
  },

  'takes nothing from the owner for a lease at a lower price': () => {
    const half = { ...situation, retailRatio: networkRatio / 2n }
    const leases = () => createLeases([leaseOf(10n)])
    const account = () => accountWith(100n, { lent: usd(10n) })
    const [rich, poor] = [roomOf(usd(100n), usd(10n)), roomOf(usd(19n), usd(10n))]
    const { lease } = lendTo(lendCall(), {
      ...half,
      account: account(),
      leases: leases(),
      room: rich,
    })
    assert.ok(lease && rich.owner.held >= usd(20n))
    const refused = lendTo(lendCall(), {
      ...half,
      account: account(),
      leases: leases(),
      room: poor,
    })
    assert.equal(refused.lease, null)
  },

  "relies on an owner's usage that ends before the booking": async () => {
    const owner = { appId: appId('platform'), userId: userId('owner') }
    const included = { kind: 'included', expiresAt: seconds(30) } as const
    const account = { ...accountWith(100n, {}, included), ...owner, periodEnd: seconds(30) }
    const { read } = createExposures({
      store: {
        findPayers: async () => [{ appId: user.appId, owner, cut: 0n }],
        readHolds: async () => [],
        countHeld: async () => 0n,
      } as never,
      accounts: {
        readStored: async () => [account],
        nextIncluded: async () => new Map([[owner.userId, usd(7n)]]),
      },
      findPayingOwners: async () => new Map(),
      horizonSeconds: 60,
    })
    const find = await read({} as never, [user.appId], { at })
    assert.equal(find(user.appId)?.owner.money, usd(7n))
  },

  'reserves against more than the next period includes': () => {
    const account = accountWith(100n, {}, { kind: 'included', expiresAt: seconds(5) })
    const times = { at, until: seconds(10), nextIncluded: usd(7n) }
    assert.deepEqual(
      [freeAt(account, times), freeAt(account, { at, until: at })],
      [usd(7n), usd(0n)],
    )
  },
}

const at = new Date('2026-01-15T12:00:00Z')
const seconds = (count: number): Date => new Date(at.getTime() + count * 1_000)
const usd = (dollars: bigint) => usdAttos(dollars * 10n ** 18n)
const user = { appId: appId('app'), userId: userId('user') }
const process = { id: 'sidecar', instance: 'instance' }
const situation = {
  process,
  leaseSeconds: 30,
  isLimited: false,
  retailRatio: networkRatio,
  room: null,
  nextIncluded: 0n,
  at,
}

const roomOf = (money: bigint, held: bigint) => ({
  owner: {
    owner: { appId: appId('platform'), userId: userId('owner') },
    money,
    held,
    isCounted: true,
    refusal: 'insufficient_balance' as const,
  },
  cut: 0n,
})

const lendCall = (): LendCall => ({
  ...user,
  isActive: true,
  leaseId: null,
  used: usd(0n),
  bound: usd(1n),
  spending: usd(0n),
  session: null,
})

const leaseOf = (amount: bigint): Lease => ({
  ...user,
  id: 'lease',
  sidecarId: process.id,
  instance: process.instance,
  amount: usd(amount),
  used: usd(0n),
  createdAt: at,
  endsAt: seconds(20),
  recalledAt: null,
  retailRatio: networkRatio,
})

/** An account with one credit. */
function accountWith(
  amount: bigint,
  more: Partial<Account> = {},
  credit: Partial<Account['credits'][number]> = {},
): Account {
  const [zero, money] = [usd(0n), usd(amount)]
  return {
    ...user,
    aheadMs: 0,
    seq: 0n,
    balance: money,
    granted: money,
    topup: money,
    consumed: zero,
    overage: zero,
    collected: zero,
    ceiling: zero,
    lacksCard: false,
    invoiced: zero,
    collecting: null,
    expired: zero,
    periodStart: new Date(0),
    periodEnd: seconds(86_400),
    periodCountsFrom: new Date(0),
    periodConsumed: zero,
    lent: zero,
    pending: zero,
    lendAfter: null,
    lateUntil: null,
    bookedThrough: new Date(0),
    head: null,
    credits: [
      {
        id: 'credit',
        kind: 'grant',
        source: 'manual',
        featureKey: null,
        amount: money,
        remaining: money,
        priority: 10,
        effectiveAt: new Date(0),
        expiresAt: null,
        expiredAt: null,
        createdAt: new Date(0),
        state: 'stored',
        ...credit,
      },
    ],
    entries: [],
    periods: [],
    ...more,
  }
}
