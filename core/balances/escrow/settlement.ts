import { uuidV7 } from '../../lib/crypto.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { UserId } from '../../shared/ids.ts'
import type {
  ChargeOptions,
  SettlementSums,
  SettlingStep,
  SettlingTickets,
  Total,
  UserCharge,
} from '../../metering/ingest/charges.ts'
import { type Account, toAppTime } from '../accounts/account.ts'
import { type Return, giveBack } from '../accounts/adjusting.ts'
import type { CountChange } from '../limits/enforcement.ts'
import type { NewAdjustment } from '../accounts/store.ts'
import { latestPlausible } from './due.ts'
import { selectTickets } from './matching.ts'
import type { EscrowStore, Lease, MatchSum, SessionChange } from './port.ts'
import { totals } from './session-sums.ts'

export type SettlementStore = Pick<
  EscrowStore,
  | 'matchTickets'
  | 'insertTicketed'
  | 'insertEarlyTickets'
  | 'findLeases'
  | 'saveLeases'
  | 'addSessions'
  | 'correctCounts'
  | 'advanceClocks'
>

/** What the ledger must write with the accounts that a settlement changed. */
export interface Settlement {
  readonly sums: SettlementSums
  /** Estimates for lost tickets that are given back because the tickets came. */
  readonly givenBack: readonly AccountAdjustment[]
}

export interface AccountAdjustment {
  readonly account: Account
  readonly adjustment: NewAdjustment
}

interface Match extends MatchSum {
  readonly step: SettlingStep
}

/**
 * Settles holds by tickets (docs/escrow-settlement.md, "Settlement and release"), in the
 * transaction that books or prices the tickets and under the locks of their accounts.
 */
export function createSettlement(store: SettlementStore) {
  /**
   * Frees what the tickets held, before the tickets burn credits, because an estimate that is given
   * back may pay for them. Returns null, without a statement, if no account has holds, late tickets
   * or unpriced tickets.
   */
  async function settle(
    db: Db,
    { accounts, charges }: { accounts: readonly Account[]; charges: readonly UserCharge[] },
    { at, settling }: ChargeOptions,
  ): Promise<Settlement | null> {
    const unpriced = new Set(charges.flatMap((c) => (c.unpriced > 0 ? [c.userId] : [])))
    const concerned = accounts.filter(
      (account) => hasHolds(account, at) || unpriced.has(account.userId),
    )
    if (concerned.length === 0) return null
    const byUser = new Map(concerned.map((account) => [account.userId, account]))
    const matches: Match[] = []
    for (const [step, tickets] of settling(new Set(byUser.keys()))) {
      const { sums, unmatched } = await store.matchTickets(db, tickets, step)
      matches.push(...sums.map((sum) => ({ ...sum, step })))
      if (unmatched.length > 0)
        await holdUnmatched(db, byUser, { tickets: selectTickets(tickets, unmatched), step, at })
    }
    for (const match of matches) freeHold(byUser.get(match.userId), match)
    await recordMatches(db, matches, at)
    return { sums: sumMatches(matches), givenBack: giveBackEstimates(byUser, matches, at) }
  }

  /**
   * Handles tickets without a known call: the call may still be reported, or its sidecar died
   * before reporting it.
   */
  async function holdUnmatched(
    db: Db,
    byUser: ReadonlyMap<UserId, Account>,
    { tickets, step, at }: { tickets: SettlingTickets; step: SettlingStep; at: Date },
  ): Promise<void> {
    if (step === 'priced') return
    if (step === 'unpriced') {
      await store.insertTicketed(db, tickets, at)
      for (const [position, cost] of tickets.cost.entries()) {
        const account = accountOf(byUser, tickets, position)
        if (account) account.pending = usdAttos(account.pending + cost)
      }
    }
    const isLent = (position: number): boolean =>
      (accountOf(byUser, tickets, position)?.lent ?? 0n) > 0n
    const ofLent = selectTickets(
      tickets,
      [...tickets.session.keys()].filter((position) => isLent(position)),
    )
    if (ofLent.session.length > 0) await lowerOrphans(db, byUser, { tickets: ofLent, at })
  }

  /**
   * Stores a ticket as early while an open lease may still report its call. Otherwise lowers
   * orphans by its cost.
   */
  async function lowerOrphans(
    db: Db,
    byUser: ReadonlyMap<UserId, Account>,
    { tickets, at }: { tickets: SettlingTickets; at: Date },
  ): Promise<void> {
    const users = new Set(tickets.session.map((position) => tickets.sessions[position]?.userId))
    const leases = await store.findLeases(
      db,
      [...byUser.values()].filter(({ userId }) => users.has(userId)),
    )
    const ofUser = Map.groupBy(leases, ({ userId }) => userId)
    const early: number[] = []
    const changed = new Set<Lease>()
    for (const [position, cost] of tickets.cost.entries()) {
      const account = accountOf(byUser, tickets, position)
      const own = (account && ofUser.get(account.userId)) ?? []
      if (!account || own.some(({ endsAt }) => endsAt > at)) early.push(position)
      else for (const lease of lowerLeases(account, own, cost)) changed.add(lease)
    }
    if (early.length > 0) await store.insertEarlyTickets(db, selectTickets(tickets, early), at)
    if (changed.size > 0)
      await store.saveLeases(db, { opened: [], changed: [...changed], closed: [] })
  }

  /** Adds to the totals of sessions, corrects the counts of limits, and moves the stream clocks. */
  async function recordMatches(db: Db, matches: readonly Match[], at: Date): Promise<void> {
    const authorised = matches.filter(({ sidecarId }) => sidecarId !== '')
    if (authorised.length === 0) return
    await store.addSessions(db, authorised.map(toSessionChange))
    await store.correctCounts(db, authorised.map(toCountChange))
    const clocks = new Map<string, Date>()
    for (const { sidecarId, bookedThrough } of authorised) {
      if (bookedThrough > latestPlausible(at)) continue
      const through = clocks.get(sidecarId)
      if (!through || through < bookedThrough) clocks.set(sidecarId, bookedThrough)
    }
    await store.advanceClocks(db, clocks)
  }

  return { settle }
}

const hasHolds = ({ lent, pending, lateUntil }: Account, at: Date): boolean =>
  lent > 0n || pending > 0n || (lateUntil !== null && lateUntil > at)

function accountOf(
  byUser: ReadonlyMap<UserId, Account>,
  { sessions, session }: SettlingTickets,
  position: number,
): Account | undefined {
  const key = sessions[session[position] ?? -1]
  return key && byUser.get(key.userId)
}

const none = usdAttos(0n)

/** Takes up to `cost` from a user's orphans. Returns the changed leases. */
export function lowerLeases(account: Account, orphans: readonly Lease[], cost: UsdAttos): Lease[] {
  let open: bigint = cost
  return orphans.filter((lease) => {
    const rest = lease.amount - lease.used
    const part = rest < open ? rest : open
    if (part <= 0n) return false
    lease.amount = usdAttos(lease.amount - part)
    account.lent = usdAttos(account.lent - part)
    open -= part
    return true
  })
}

/**
 * A ticket without a price keeps holding what its call held, or holds it again if that hold had
 * ended.
 */
function freeHold(account: Account | undefined, { state, step, bound }: Match): void {
  if (!account) return
  if (state === 'pending' && step !== 'unpriced')
    account.pending = usdAttos(account.pending - bound)
  if ((state === 'lost' || state === 'released') && step === 'unpriced')
    account.pending = usdAttos(account.pending + bound)
}

/** A charged estimate stays until its ticket has a price. */
const endsEstimate = ({ state, step }: Match): boolean => state === 'charged' && step !== 'unpriced'

const isLate = (match: Match): boolean =>
  endsEstimate(match) || match.state === 'lost' || match.state === 'released'

function toSessionChange(match: Match): SessionChange {
  const { appId, userId, sessionId, sessionType, state, step, count, bound, cost } = match
  const late = { count, amount: bound }
  const ended = { count: -count, amount: usdAttos(-bound) }
  return {
    appId,
    userId,
    sessionId,
    sessionType,
    // Not the current time, so that the index on the time of a session's last call stays unchanged.
    at: match.latestAt,
    calls: [],
    instance: null,
    added: totals({
      ticketed: { count: step === 'priced' ? 0 : count, amount: step === 'unpriced' ? none : cost },
      ...(isLate(match) && { late, [state]: ended }),
    }),
  }
}

/** Limits count a call by its bound until it has a cost. A released call does not count. */
function toCountChange(match: Match): CountChange {
  const { appId, userId, sessionId, keyId, state, step, bound, cost, latestAt } = match
  return {
    appId,
    userId,
    sessionId,
    keyId,
    authorisedAt: latestAt,
    from: state === 'released' ? none : bound,
    to: step === 'unpriced' ? bound : cost,
  }
}

/**
 * Takes back the estimates of calls whose tickets came. Returns to the credits what the estimates
 * drew, and cancels their overage, which was never paid.
 */
function giveBackEstimates(
  byUser: ReadonlyMap<UserId, Account>,
  matches: readonly Match[],
  at: Date,
): AccountAdjustment[] {
  const estimates = Map.groupBy(matches.filter(endsEstimate), ({ userId }) => userId)
  return [...estimates].flatMap(([userId, userMatches]) => {
    const account = byUser.get(userId)
    const parts = partsDrawn(userMatches)
    const estimated = usdAttos(userMatches.reduce((sum: bigint, { bound }) => sum + bound, 0n))
    if (!account || estimated === 0n) return []
    const drawn = parts.reduce((sum: bigint, { amount }) => sum + amount, 0n)
    const own = toAppTime(account, at)
    const adjustment = {
      id: uuidV7(at.getTime()),
      amount: estimated,
      reason: 'tickets of lost calls arrived; their estimates were refunded',
      author: 'tollgate',
      eventId: null,
      at: own,
    }
    giveBack(account, { id: adjustment.id, at: own, parts, overage: usdAttos(estimated - drawn) })
    return [{ account, adjustment }]
  })
}

/**
 * Returns the parts to give back, by credit. If the draws of an estimate were not recorded, all of
 * its bound becomes a new credit.
 */
function partsDrawn(matches: readonly Match[]): Return[] {
  const byCredit = new Map<string, bigint>()
  const add = (creditId: string, amount: bigint): void =>
    void byCredit.set(creditId, (byCredit.get(creditId) ?? 0n) + amount)
  for (const { drawn, undrawn } of matches) {
    for (const { creditId, amount } of drawn) add(creditId, amount)
    if (undrawn > 0n) add('', undrawn)
  }
  // An estimate draws only from credits that pay for anything.
  return [...byCredit].map(([creditId, amount]) => ({
    creditId,
    featureKey: null,
    amount: usdAttos(amount),
  }))
}

function sumMatches(matches: readonly Match[]): SettlementSums {
  const authorised = matches.filter(({ sidecarId }) => sidecarId !== '')
  return {
    settled: sumOf(
      authorised.filter(({ step }) => step !== 'unpriced'),
      ({ bound }) => bound,
    ),
    late: sumOf(authorised.filter(isLate), ({ bound }) => bound),
    lateAfterRelease: sumOf(
      authorised.filter(({ state }) => state === 'released'),
      ({ cost }) => cost,
    ),
  }
}

const sumOf = (matches: readonly Match[], amountOf: (match: Match) => UsdAttos): Total => ({
  count: matches.reduce((sum, { count }) => sum + count, 0),
  amount: usdAttos(matches.reduce((sum: bigint, match) => sum + amountOf(match), 0n)),
})
