import type { Lease as LentLease } from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type { Account, Lease } from './accounts.ts'
import { nanosDown } from './nanos.ts'
import type { Reports } from './reports.ts'

/** Clocks and pauses of wallets; a simulation provides its own. */
export interface Clocks {
  /**
   * Milliseconds of a clock that never jumps, for ends of leases. Takes a reading of `wall`, if the
   * caller has one.
   */
  readonly mono: (wall?: number) => number
  /**
   * Unix milliseconds. Used for the times of reported calls, and to detect that `mono` stood still.
   */
  readonly wall: () => number
  readonly sleep: (ms: number) => Promise<unknown>
}

/** An amount, in nano-dollars, to be paid from a lease at an instant. */
export interface Debit {
  readonly bound: number
  readonly at: number
}

export interface OpenLeasesOptions {
  readonly reports: Reports
  /** Maximum time between renewals, so that the cached state of the user stays current. */
  readonly refreshMs: number
  readonly mono: () => number
}

/** Leases end here this much before they end in core, because clocks and pauses may differ. */
const marginMs = 2_000
const idleMs = 10_000
/** Interval between renewals of leases that are due by time. */
const roundMs = 1_000

/** The leases that this process may spend. */
export function createOpenLeases({ reports, refreshMs, mono }: OpenLeasesOptions) {
  const open = new Map<string, Account>()
  const totals = { lent: 0, spent: 0, returned: 0 }
  let roundAt = 0
  const nextShare = createShares()

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

  /** Opens or renews the account's lease by core's answer to a request sent at `at`. */
  function renew(account: Account, lent: LentLease, at: number): void {
    const amount = nanosDown(lent.amountUsdAttos)
    if (account.lease && account.lease.id !== lent.id) giveBackNow(account)
    const isNew = account.lease === null
    const lease = (account.lease ??= newLease(lent.id, at))
    totals.lent += Math.max(0, amount - lease.amount)
    lease.amount = Math.max(lease.amount, amount)
    lease.endsAt = Math.max(lease.endsAt, at + lent.seconds * 1000 - marginMs)
    lease.renewedAt = at
    lease.renewAbove = lease.used + (lease.amount - lease.used) / 2
    // Spread renewals, so that leases opened together are not renewed together.
    const periodMs = Math.min(refreshMs, (lent.seconds * 1000) / 3)
    lease.renewAt = at + (isNew ? periodMs * nextShare() : periodMs)
    open.set(account.authId, account)
  }

  /** Stops spending from the account's lease and returns it after the calls that it paid for. */
  function giveBackNow(account: Account): void {
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
  function giveBack(account: Account): void {
    if (account.lending) account.isRecalled = true
    else giveBackNow(account)
  }

  /** Returns the leases of these users. */
  function recall(userIds: readonly string[]): void {
    const recalled = new Set(userIds)
    for (const account of open.values()) if (recalled.has(account.userId)) giveBack(account)
    void reports.flush()
  }

  /** Returns the leases of the users of an app, by its client id. */
  function recallApp(clientId: string): void {
    for (const account of open.values()) if (account.clientId === clientId) giveBack(account)
    void reports.flush()
  }

  /** Returns leases that ended or were unused for ten seconds. */
  async function returnIdle(): Promise<void> {
    const at = mono()
    for (const account of open.values()) {
      const { lease } = account
      if (lease && (lease.endsAt <= at || lease.usedAt + idleMs <= at)) giveBack(account)
    }
    await reports.flush()
  }

  /**
   * Returns the accounts whose leases are to be renewed: those that are half spent, and once a
   * second those that are due by time.
   */
  function takeDue(): Account[] {
    const at = mono()
    const isRound = at >= roundAt
    if (isRound) roundAt = at + roundMs
    return [...open.values()].filter((account) => isDue(account, at, isRound))
  }

  /** Stops spending from all leases. */
  function giveBackAll(): void {
    for (const account of open.values()) giveBack(account)
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
    renew,
    giveBackNow,
    giveBack,
    giveBackAll,
    recall,
    recallApp,
    returnIdle,
    takeDue,
    longestSeconds,
    totals: (): Readonly<typeof totals> => totals,
    size: () => open.size,
  }
}

function isDue({ lease, lending }: Account, at: number, isRound: boolean): boolean {
  if (!lease || lending || lease.usedAt + idleMs <= at) return false
  return lease.used >= lease.renewAbove || (isRound && lease.renewAt <= at)
}

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
 * A larger gap means that the machine was suspended or the wall clock was set forward. Both end
 * leases.
 */
const gapMs = 1_000

/**
 * Returns the clock by which leases end: monotonic milliseconds plus the time for which the
 * monotonic clock stood still because the machine was suspended, measured with the wall clock. A
 * decision has already read the wall clock and passes its reading.
 */
export function createLeaseClock({ mono, wall }: Pick<Clocks, 'mono' | 'wall'>): Clocks['mono'] {
  let aheadMs = wall() - mono()
  let suspendedMs = 0

  return (wallMs = wall()) => {
    const at = mono()
    const ahead = wallMs - at
    const gap = ahead - aheadMs
    if (gap > gapMs) suspendedMs += gap
    // Let small gaps add up. Start again after the wall clock was set back.
    if (gap > gapMs || gap < 0) aheadMs = ahead
    return at + suspendedMs
  }
}
