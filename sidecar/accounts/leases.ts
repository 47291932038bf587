import { DomainError } from '../../proto/errors.ts'
import type {
  LendAnswer,
  LendCall,
  LendResponse,
  Lease as LentLease,
  Rate,
  SidecarProcess,
} from '../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import type { Versions } from '../identity/cached-state.ts'
import type { Account, Accounts, Lease } from './accounts.ts'
import type { Gather } from '../batcher.ts'
import type { CurrentRate } from './bounds.ts'
import type { EscrowCore } from './escrow-core.ts'
import { toAttos, nanosDown, nanosPerWei } from './nanos.ts'
import type { Reports } from './reports.ts'

/** The purpose of a Lend. */
export interface LendQuery {
  /** Nano-dollars of the current call; 0 when not known. */
  readonly bound: number
  /**
   * Also fetches the prior call of this session: the one with the highest number below `sequence`.
   */
  readonly session?: { readonly id: string; readonly sequence: number }
}

/** An amount, in nano-dollars, to be paid from a lease at an instant. */
export interface Debit {
  readonly bound: number
  readonly at: number
}

export interface LeasesOptions {
  readonly core: Pick<EscrowCore, 'lend' | 'within'>
  readonly process: SidecarProcess
  readonly accounts: Accounts
  readonly versions: Versions
  readonly reports: Reports
  readonly rate: CurrentRate
  /** Maximum time between renewals, so that the cached state of the user stays current. */
  readonly refreshMs: number
  readonly mono: () => number
  readonly gather: Gather
}

/** Leases end here this much before they end in core, because clocks and pauses may differ. */
const marginMs = 2_000
const idleMs = 10_000
/** Interval between renewals of leases that are due by time. */
const roundMs = 1_000
/** How long no Lend is sent after core lent nothing. */
const reserveMs = 5_000
/** Kept small, because core locks the users of a request until it has answered. */
const maxCalls = 100

/**
 * Leases of users' money (docs/escrow.md, "Lease"). All amounts are cumulative, and a lease's end
 * is counted from before the request, so a lost or late answer does no harm.
 */
export function createLeases(options: LeasesOptions) {
  const { core, process, accounts, versions, reports, rate, mono } = options
  const open = new Map<string, Account>()
  const totals = { lent: 0, spent: 0, returned: 0 }
  let roundAt = 0
  const nextShare = createShares()
  const lendCall = options.gather<LendCall, LendAnswer>({ send: sendCalls, max: maxCalls })

  async function sendCalls(calls: LendCall[]): Promise<LendAnswer[]> {
    const response: LendResponse = await core.lend({ sidecar: process, calls })
    setRate(response.rate)
    return response.answers
  }

  function setRate(current: Rate | undefined): void {
    const nanos = current ? nanosPerWei(current.usdAttosPerEth) : 0
    rate.nanosPerWei = Number.isFinite(nanos) && nanos > 0 ? nanos : null
    rate.attosPerEth = current && rate.nanosPerWei !== null ? BigInt(current.usdAttosPerEth) : 0n
    rate.observedAt = Number(current?.observedAt ?? 0n)
    rate.isRaised = current?.raised ?? false
  }

  /** Whether the account's lease covers `bound` at `at`. */
  function covers({ lease }: Account, { bound, at }: Debit): boolean {
    if (!lease || lease.endsAt <= at) return false
    return lease.amount - lease.used >= bound
  }

  /** Takes `bound` from a lease that covers it. */
  function debit({ spending }: Account, lease: Lease, debit: Debit): void {
    lease.used += debit.bound
    lease.usedAt = debit.at
    spending.sum += debit.bound
    totals.spent += debit.bound
  }

  /**
   * Opens or renews the lease of a user, and stores core's answer about them. Runs once at a time
   * per user; callers without a session share the Lend in flight. Throws when core does not answer
   * while a decision may wait; a later answer still serves the calls that follow.
   */
  async function lend(account: Account, query: LendQuery): Promise<LendAnswer | null> {
    if (account.lending && !query.session) {
      await core.within(account.lending)
      return null
    }
    while (account.lending) await core.within(account.lending.catch(() => undefined))
    const flight = lendNow(account, query).finally(() => {
      account.lending = null
      if (account.isRecalled || reports.isRefused()) giveBack(account)
    })
    account.lending = flight
    return core.within(flight)
  }

  async function lendNow(account: Account, query: LendQuery): Promise<LendAnswer> {
    await reports.join()
    await reports.returned(account)
    if (account.evicted) throw new DomainError('UNAVAILABLE', 'the account was forgotten meanwhile')
    const read = { at: mono(), version: versions.current() }
    const answer = await lendCall(callOf(account, query, read.at))
    if (answer.refusal !== '') {
      accounts.learnUnknown(account, answer.refusal, read)
      giveBack(account)
      return answer
    }
    accounts.learn(account, answer, read)
    account.remaining = nanosDown(answer.remainingUsdAttos)
    account.remainingAt = read.at
    account.ceilings = answer.ceilings
    if (answer.lease && answer.lease.id !== account.returnedLeaseId)
      renew(account, answer.lease, { ...query, at: read.at })
    else {
      account.reserveUntil = mono() + reserveMs
      giveBack(account)
    }
    return answer
  }

  function callOf(account: Account, { bound, session }: LendQuery, at: number): LendCall {
    const { clientId, externalUserId, lease } = account
    return {
      clientId,
      externalUserId,
      leaseId: lease?.id ?? '',
      usedUsdAttos: toAttos(lease?.used ?? 0),
      boundUsdAttos: toAttos(Math.min(bound, Number.MAX_SAFE_INTEGER)),
      spendingUsdAttos: toAttos(measureSpending(account, at)),
      sessionId: session?.id ?? '',
      sequence: BigInt(session?.sequence ?? 0),
    }
  }

  function renew(account: Account, lent: LentLease, by: { at: number }): void {
    const amount = nanosDown(lent.amountUsdAttos)
    if (account.lease && account.lease.id !== lent.id) giveBack(account)
    const isNew = account.lease === null
    const lease = (account.lease ??= newLease(lent.id, by.at))
    totals.lent += Math.max(0, amount - lease.amount)
    lease.amount = Math.max(lease.amount, amount)
    lease.endsAt = Math.max(lease.endsAt, by.at + lent.seconds * 1000 - marginMs)
    lease.renewedAt = by.at
    lease.renewAbove = lease.used + (lease.amount - lease.used) / 2
    // Spread renewals, so that leases opened together are not renewed together.
    const periodMs = Math.min(options.refreshMs, (lent.seconds * 1000) / 3)
    lease.renewAt = by.at + (isNew ? periodMs * nextShare() : periodMs)
    open.set(account.authId, account)
  }

  /** Stops spending from the account's lease and returns it after the calls that it paid for. */
  function giveBack(account: Account): void {
    const { lease } = account
    account.isRecalled = false
    if (!lease) return
    account.lease = null
    account.returnedLeaseId = lease.id
    open.delete(account.authId)
    totals.returned += lease.amount - lease.used
    reports.giveBack(account, lease)
  }

  /** Returns the lease of an account as soon as no Lend for it is in flight. */
  function giveBackSoon(account: Account): void {
    if (account.lending) account.isRecalled = true
    else giveBack(account)
  }

  /** Returns the leases of these users. */
  function recall(userIds: readonly string[]): void {
    const recalled = new Set(userIds)
    for (const account of open.values()) if (recalled.has(account.userId)) giveBackSoon(account)
    void reports.flush()
  }

  /** Returns leases that ended or were unused for ten seconds. */
  async function returnIdle(): Promise<void> {
    const at = mono()
    for (const account of open.values()) {
      const { lease } = account
      if (lease && (lease.endsAt <= at || lease.usedAt + idleMs <= at)) giveBackSoon(account)
    }
    await reports.flush()
  }

  /**
   * Renews leases in use: immediately when half is spent, and once a second those that are due by
   * time, because one transaction for many users costs little more than one for few. Reports their
   * calls first, so that core lends from the actual balance.
   */
  async function renewDue(): Promise<void> {
    const at = mono()
    const isRound = at >= roundAt
    if (isRound) roundAt = at + roundMs
    const due = [...open.values()].filter((account) => isDue(account, at, isRound))
    if (due.length === 0) return
    for (const account of due) reports.takeRuns(account)
    await reports.flush()
    const renew = async (account: Account): Promise<void> => {
      if (account.lease) await lend(account, { bound: 0 }).catch(() => undefined)
    }
    await Promise.all(due.map(renew))
  }

  function isDue({ lease, lending }: Account, at: number, isRound: boolean): boolean {
    if (!lease || lending || lease.usedAt + idleMs <= at) return false
    return lease.used >= lease.renewAbove || (isRound && lease.renewAt <= at)
  }

  /** Stops spending from all leases. */
  function giveBackAll(): void {
    for (const account of open.values()) giveBackSoon(account)
  }

  /** Seconds until the end of the lease that ends last. */
  function longestSeconds(): number {
    let endsAt = -Infinity
    for (const { lease } of open.values()) if (lease) endsAt = Math.max(endsAt, lease.endsAt)
    return Math.max(0, (endsAt - mono()) / 1000)
  }

  return {
    covers,
    debit,
    lend,
    setRate,
    giveBack: giveBackSoon,
    giveBackAll,
    recall,
    returnIdle,
    renewDue,
    longestSeconds,
    totals: (): Readonly<typeof totals> => totals,
    size: () => open.size,
  }
}

export type Leases = ReturnType<typeof createLeases>

const newLease = (id: string, at: number): Lease => ({
  id,
  amount: 0,
  used: 0,
  endsAt: 0,
  renewedAt: at,
  renewAbove: 0,
  renewAt: 0,
  usedAt: at,
})

/** Returns a generator of numbers from 0.5 to 1 that are evenly spread, however many are taken. */
function createShares(): () => number {
  let turn = 0
  return () => {
    turn = (turn + 0.618_034) % 1
    return 0.5 + turn / 2
  }
}

/**
 * Nano-dollars per second, measured by bounds. Follows a rise at once and halves at most on a fall.
 */
function measureSpending({ spending }: Account, at: number): number {
  const seconds = (at - spending.since) / 1000
  if (seconds < 1) return Math.max(spending.sum, spending.rate)
  spending.rate = Math.ceil(Math.max(spending.sum / seconds, spending.rate / 2))
  spending.sum = 0
  spending.since = at
  return spending.rate
}
