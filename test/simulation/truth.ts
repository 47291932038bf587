import { type Account, burn } from '../../core/allowances/account.ts'
import type { StoredAuthorisation } from '../../core/allowances/escrow/port.ts'
import { openCalls } from '../../core/allowances/escrow/reports/runs.ts'
import { usdAttos } from '../../core/lib/money.ts'
import { userCharges } from '../../core/metering/ingest/charges.ts'
import type { AppId, UserId } from '../../core/platform/ids.ts'
import { type SignerCall, describe } from './actors/signer.ts'

/**
 * A call that a sidecar answered with 200, as only the rule knows it. Times are true times in
 * milliseconds.
 */
export interface AllowedCall extends SignerCall {
  readonly userId: UserId
  readonly sidecarId: string
  readonly instance: string
  readonly at: number
  /**
   * The cost of its ticket in atto-dollars. If a rate has changed since core last sent one to the
   * sidecar, this is the cost at the sent rate, if that is lower: a rate travels with each answer
   * of core (docs/escrow.md), so nothing else can be promised.
   */
  readonly cost: bigint
  /**
   * Signed before a period's end by the signer's clock, and allowed after it. Its ticket draws on
   * the ended period, and may leave less for that period's other calls. What it was allowed for
   * stays with the user.
   */
  readonly isAcross: boolean
  isSigned: boolean
  /** Core has received it in a report, or reserved it. */
  isReported: boolean
}

/** Core's data of a user that the rule reads. */
export interface CoreState {
  readonly account: Account
  readonly authorisations: readonly StoredAuthorisation[]
  /** Processes that hold a lease of the user. */
  readonly instances: ReadonlySet<string>
}

export interface UserTruth {
  readonly appId: AppId
  readonly userId: UserId
  /** Allowed, not in the ledger, and not given up by core. */
  readonly open: Set<AllowedCall>
  /** Given up by core; a ticket may still come. */
  readonly ended: Set<AllowedCall>
  /** The part of the open calls that no credit covered at the last check. */
  shortfall: bigint
  /**
   * How much `shortfall` may grow at the next check: costs without a hold, for a reason that the
   * promise names.
   */
  excuse: bigint
  /** Costs of all tickets in the ledger. */
  charged: bigint
}

export interface Promises {
  readonly lagMs: number
  readonly holdMaxMs: number
  /** How far clocks may differ or jump. */
  readonly toleranceMs: number
}

/** Records everything that was really allowed, signed and booked. */
export function createTruth({ lagMs, holdMaxMs, toleranceMs }: Promises) {
  const users = new Map<string, UserTruth>()
  /**
   * By sidecar: the time of its latest call with a booked ticket, and of its latest call that core
   * knows.
   */
  const booked = new Map<string, number>()
  const known = new Map<string, number>()
  const tooEarly = new Set<AllowedCall>()
  let broken: string | null = null

  function openUser(user: { appId: AppId; userId: UserId }): void {
    users.set(user.userId, {
      ...user,
      open: new Set(),
      ended: new Set(),
      shortfall: 0n,
      excuse: 0n,
      charged: 0n,
    })
  }

  const truthOf = (userId: string): UserTruth => {
    const user = users.get(userId)
    if (!user) throw new Error(`no user ${userId}`)
    return user
  }

  function allow(call: AllowedCall): void {
    const user = truthOf(call.userId)
    user.open.add(call)
    if (call.isAcross) user.excuse += call.cost
  }

  /** Records that the ticket of a call is in the ledger at `cost`. */
  function book(call: AllowedCall, cost: bigint): void {
    const user = truthOf(call.userId)
    user.charged += cost
    raise(booked, call.sidecarId, call.at)
    if (tooEarly.has(call))
      broken = `the ticket of ${describe(call)} came when core had given it up too early`
    if (user.ended.delete(call)) user.excuse += cost
    else if (call.isAcross) user.excuse += cost
    else if (cost > call.cost) user.excuse += cost - call.cost
    user.open.delete(call)
  }

  /** Records that the stream has delivered the ticket of a call, which waits for its price. */
  const pass = (call: AllowedCall): void => raise(booked, call.sidecarId, call.at)

  /** Returns the problem of a user after a step at `now`; null if the rule holds. */
  function check(userId: string, core: CoreState, now: number): string | null {
    const user = truthOf(userId)
    endCalls(user, core, now)
    const problem = broken ?? ledgerProblem(user, core)
    if (problem) return problem
    const shortfall = shortfallOf(core.account, user.open)
    if (shortfall > user.shortfall + user.excuse)
      return `the credits of ${userId} miss ${shortfall} attos for ${user.open.size} allowed calls`
    user.shortfall = shortfall
    user.excuse = 0n
    return null
  }

  /** Records the calls that core has given up since the last check. */
  function endCalls(user: UserTruth, core: CoreState, now: number): void {
    if (user.open.size === 0) return
    const rows = Map.groupBy(core.authorisations, ({ sessionId }) => sessionId)
    for (const call of user.open) {
      const row = findRow(rows.get(call.session.id) ?? [], call)
      if (row && !call.isReported) {
        call.isReported = true
        raise(known, call.sidecarId, call.at)
      }
      if (isHeld(call, row, core)) continue
      if (row?.state !== 'charged' && !mayEnd(call, now)) tooEarly.add(call)
      user.open.delete(call)
      user.ended.add(call)
    }
  }

  function mayEnd(call: AllowedCall, now: number): boolean {
    if (!call.isReported) return now >= call.at + lagMs - toleranceMs
    const passed = (booked.get(call.sidecarId) ?? -Infinity) >= call.at + lagMs - toleranceMs
    const idle = now >= (known.get(call.sidecarId) ?? 0) + holdMaxMs - toleranceMs
    return passed || idle
  }

  return { users, openUser, truthOf, allow, book, pass, check }
}

export type Truth = ReturnType<typeof createTruth>

function raise(times: Map<string, number>, key: string, at: number): void {
  times.set(key, Math.max(times.get(key) ?? 0, at))
}

/**
 * True while core holds money for a call, by its row or by a lease under which it may be reported.
 */
function isHeld(call: AllowedCall, row: StoredAuthorisation | undefined, core: CoreState): boolean {
  if (row) return row.state === 'pending'
  const isLent = core.instances.has(call.instance)
  // The ticket of an old signer's call may settle another call with the same number.
  if (call.session.plan.isOld)
    return isLent || core.authorisations.some((other) => isSame(call, other))
  return isLent || call.isReported
}

const isSame = ({ session, sequence }: AllowedCall, row: StoredAuthorisation): boolean =>
  row.state === 'pending' &&
  row.sessionId === session.id &&
  openCalls(row).some((call) => call.sequence === BigInt(sequence))

/** Returns the row of a call or of its run. */
function findRow(
  rows: readonly StoredAuthorisation[],
  { sequence, lastUpdate }: AllowedCall,
): StoredAuthorisation | undefined {
  const [number, micros] = [BigInt(sequence), lastUpdate / 1_000n]
  return rows.findLast((row) =>
    openCalls(row).some((call) => call.sequence === number && call.signedMicros === micros),
  )
}

/**
 * Checks that each ticket is charged once, and nothing else. Estimates of lost tickets are
 * adjustments and do not count as consumed.
 */
function ledgerProblem({ charged, userId }: UserTruth, { account }: CoreState): string | null {
  if (account.consumed === charged) return null
  return `${userId} was charged ${account.consumed} attos, the tickets cost ${charged}`
}

/**
 * Returns the part of the open calls that the credits do not cover, by the ledger's own arithmetic
 * on a copy.
 */
function shortfallOf(account: Account, open: ReadonlySet<AllowedCall>): bigint {
  if (open.size === 0) return 0n
  let sum = 0n
  for (const { cost } of open) sum += cost
  const lasting = account.credits.reduce(
    (total, { featureKey, expiresAt, remaining }) =>
      featureKey === null && expiresAt === null ? total + remaining : total,
    0n,
  )
  if (sum <= lasting) return 0n
  const copy = {
    ...account,
    credits: account.credits.map((credit) => ({ ...credit })),
    entries: [],
  }
  const before = copy.overage
  const tickets = [...open].map(({ cost, eventTime, session }, index) => ({
    appId: account.appId,
    userId: account.userId,
    eventId: String(index),
    signedAt: new Date(Number(eventTime / 1_000_000n)),
    pipeline: session.plan.type === 'lv2v' ? 'live-video-to-video' : 'other',
    modelId: 'echo',
    cost: usdAttos(cost),
  }))
  for (const charge of userCharges(tickets))
    burn(copy, { ...charge, id: 'rule', at: new Date(0), ratesKnownAt: null })
  return copy.overage - before
}
