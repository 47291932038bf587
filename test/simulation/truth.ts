import type { Account } from '../../core/balances/accounts/account.ts'
import { burn } from '../../core/balances/accounts/burning.ts'
import { spendableAt } from '../../core/balances/accounts/credits.ts'
import type { StoredAuthorisation } from '../../core/balances/escrow/port.ts'
import { openCalls } from '../../core/balances/escrow/reports/runs.ts'
import { usdAttos } from '../../core/lib/money.ts'
import { userCharges } from '../../core/metering/ingest/charges.ts'
import type { AppId, UserId } from '../../core/shared/ids.ts'
import { type SignerCall, describe } from './actors/signer.ts'
import { epochMs } from './virtual-time.ts'

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
  /** The same for the account of the app's owner. */
  readonly ownerCost: bigint
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
  /** Calls of old signers with a ticket in the ledger that their sidecar has not reported. */
  readonly unreported: Set<AllowedCall>
  /** The part of the open calls that no credit covered at the last check. */
  shortfall: bigint
  /**
   * How much `shortfall` may grow at the next check: costs without a hold, for a reason that the
   * promise names.
   */
  excuse: bigint
  /** Costs of all tickets in the ledger. */
  charged: bigint
  /** What the plan includes from the second period on. */
  readonly includedNext: bigint
  /** The debt that the user may run up, and the debt that was paid, less refunds. */
  ceiling: bigint
  collected: bigint
  /**
   * How much `shortfall` may still grow by what was held when the credit line became smaller: a
   * sidecar may spend it until it learns of the recall, or until its lease ends.
   */
  held: { amount: bigint; until: number }
}

export interface Promises {
  /** How long a lease and its answers last. */
  readonly leaseMs: number
  /** How long an owner's apps may spend money that its account has lost. */
  readonly ownerRecallMs: number
  readonly lagMs: number
  readonly holdMaxMs: number
  /** How far clocks may differ or jump. */
  readonly toleranceMs: number
}

export interface OpenedUser extends Pick<UserTruth, 'includedNext' | 'ceiling'> {
  readonly appId: AppId
  readonly userId: UserId
}

/** A change of a user's credit line from outside the escrow. */
export interface LineChange {
  readonly account: Account
  readonly ceiling?: bigint
  /** Paid debt; negative for a refund. */
  readonly collected?: bigint
  /** Overage that an operator's debit has added. */
  readonly overage?: bigint
  /** What is held of the account. */
  readonly held: bigint
  readonly now: number
}

/** Records everything that was really allowed, signed and booked. */
export function createTruth(
  { lagMs, holdMaxMs, leaseMs, ownerRecallMs, toleranceMs }: Promises,
  ownerId: string | null = null,
) {
  const users = new Map<string, UserTruth>()
  /**
   * By sidecar: the time of its latest call with a booked ticket, and of its latest call that core
   * knows.
   */
  const booked = new Map<string, number>()
  const known = new Map<string, number>()
  const tooEarly = new Set<AllowedCall>()
  /** Authorisations whose bound was debited as an estimate. */
  const estimated = new Set<bigint>()
  let broken: string | null = null

  function openUser(user: OpenedUser): void {
    users.set(user.userId, {
      ...user,
      open: new Set(),
      ended: new Set(),
      unreported: new Set(),
      shortfall: 0n,
      excuse: 0n,
      charged: 0n,
      collected: 0n,
      held: { amount: 0n, until: 0 },
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
    owner()?.open.add(call)
  }

  const owner = (): UserTruth | null => (ownerId === null ? null : truthOf(ownerId))

  /** Records that the ticket of a call is in the ledger at `cost`, and costs the owner `ownerCost`. */
  function book(call: AllowedCall, cost: bigint, ownerCost: bigint): void {
    const user = truthOf(call.userId)
    user.charged += cost
    bookForOwner(call, ownerCost)
    raise(booked, call.sidecarId, call.at)
    if (tooEarly.has(call))
      broken = `the ticket of ${describe(call)} came when core had given it up too early`
    if (user.ended.delete(call)) user.excuse += cost
    else if (call.isAcross) user.excuse += cost
    else if (cost > call.cost) user.excuse += cost - call.cost
    if (user.open.delete(call) && call.session.plan.isOld && !call.isReported)
      user.unreported.add(call)
  }

  function bookForOwner(call: AllowedCall, cost: bigint): void {
    const account = owner()
    if (!account) return
    account.charged += cost
    const paid = account.open.delete(call) ? call.ownerCost : 0n
    if (cost > paid) account.excuse += cost - paid
  }

  /** Records a change of a credit line. `account` is as after the change. */
  function changeLine(userId: string, { account, now, ...change }: LineChange): void {
    const user = truthOf(userId)
    const before = lineOf(user, account.overage - (change.overage ?? 0n))
    user.ceiling = change.ceiling ?? user.ceiling
    user.collected += change.collected ?? 0n
    const lost = before - lineOf(user, account.overage)
    if (lost <= 0n) return
    user.excuse += lost
    const { held } = change
    user.held.amount = now > user.held.until ? 0n : user.held.amount
    user.held.amount += lost < held ? lost : held
    user.held.until = now + (userId === ownerId ? ownerRecallMs : leaseMs)
  }

  /** Returns the debt that the user may still run up. */
  const creditLine = (userId: string, account: Pick<Account, 'overage'>): bigint =>
    lineOf(truthOf(userId), account.overage)

  /** Records that the stream has delivered the ticket of a call, which waits for its price. */
  const pass = (call: AllowedCall): void => raise(booked, call.sidecarId, call.at)

  /** Returns the problem of a user after a step at `now`; null if the rule holds. */
  function check(userId: string, core: CoreState, now: number): string | null {
    const user = truthOf(userId)
    endCalls(user, core, now)
    excuseEstimates(user, core)
    const problem = broken ?? ledgerProblem(user, core)
    if (problem) return problem
    const line = lineOf(user, core.account.overage)
    const shortfall = positive(shortfallOf(core.account, user) - line)
    const growth = shortfall - user.shortfall - user.excuse
    const held = now > user.held.until ? 0n : user.held.amount
    if (growth > held)
      return `the credits of ${userId} and its line of ${line} miss ${shortfall} attos for ${user.open.size} allowed calls`
    if (growth > 0n) user.held.amount = held - growth
    user.shortfall = shortfall
    user.excuse = 0n
    return null
  }

  /**
   * Returns the problem of the owner's account after a step at `now`; null if the rule holds. Its
   * credit burns when tickets are booked, so that of a period that is over does not count.
   */
  function checkOwner(account: Account, now: Date): string | null {
    const user = owner()
    if (!user) return null
    const problem = ledgerProblem(user, { account })
    if (problem) return problem
    const isOver = account.periodEnd <= now
    const money =
      spendableAt(account.credits, now) +
      (isOver ? user.includedNext : 0n) +
      lineOf(user, account.overage)
    let open = 0n
    for (const { ownerCost } of user.open) open += ownerCost
    const shortfall = positive(open - money)
    const growth = shortfall - user.shortfall - user.excuse
    const held = now.getTime() - epochMs > user.held.until ? 0n : user.held.amount
    if (growth > held)
      return `the owner's credits and line of ${money} attos miss ${shortfall} attos for ${user.open.size} allowed calls`
    if (growth > 0n) user.held.amount = held - growth
    user.shortfall = shortfall
    user.excuse = 0n
    return null
  }

  /** Records the calls that core has given up since the last check. */
  function endCalls(user: UserTruth, core: CoreState, now: number): void {
    if (user.open.size === 0) return
    const rows = Map.groupBy(core.authorisations, ({ sessionId }) => sessionId)
    for (const call of user.unreported)
      if (findRow(rows.get(call.session.id) ?? [], call)) user.unreported.delete(call)
    for (const call of user.open) {
      const row = findRow(rows.get(call.session.id) ?? [], call)
      if (row && !call.isReported) {
        call.isReported = true
        raise(known, call.sidecarId, call.at)
      }
      if (isHeld(call, row, { ...core, unreported: user.unreported })) continue
      if (row?.state !== 'charged' && !mayEnd(call, now)) tooEarly.add(call)
      user.open.delete(call)
      user.ended.add(call)
      owner()?.open.delete(call)
    }
  }

  /** An estimate of a lost call debits its bound, which is more than its cost. */
  function excuseEstimates(user: UserTruth, { authorisations }: CoreState): void {
    if (user.ceiling === 0n) return
    for (const { id, state, bound } of authorisations) {
      if (state !== 'charged' || estimated.has(id)) continue
      estimated.add(id)
      user.excuse += bound
    }
  }

  function mayEnd(call: AllowedCall, now: number): boolean {
    if (!call.isReported) return now >= call.at + lagMs - toleranceMs
    const passed = (booked.get(call.sidecarId) ?? -Infinity) >= call.at + lagMs - toleranceMs
    const idle = now >= (known.get(call.sidecarId) ?? 0) + holdMaxMs - toleranceMs
    return passed || idle
  }

  return { users, openUser, truthOf, allow, book, pass, changeLine, creditLine, check, checkOwner }
}

export type Truth = ReturnType<typeof createTruth>

function raise(times: Map<string, number>, key: string, at: number): void {
  times.set(key, Math.max(times.get(key) ?? 0, at))
}

/**
 * True while core holds money for a call, by its row or by a lease under which it may be reported.
 */
function isHeld(
  call: AllowedCall,
  row: StoredAuthorisation | undefined,
  core: CoreState & Pick<UserTruth, 'unreported'>,
): boolean {
  if (row) return row.state === 'pending'
  const isLent = core.instances.has(call.instance)
  // The ticket of an old signer's call may settle another call with the same number. Then the hold
  // of that call is left for this one: its lease until it is reported, and its row after that.
  if (call.session.plan.isOld) {
    const holdsLease = (other: AllowedCall): boolean =>
      other.session === call.session &&
      other.sequence === call.sequence &&
      core.instances.has(other.instance)
    return (
      isLent ||
      core.authorisations.some((other) => isSame(call, other)) ||
      [...core.unreported].some(holdsLease)
    )
  }
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

const positive = (amount: bigint): bigint => (amount > 0n ? amount : 0n)

/** Computes a credit line without the code under test. */
const lineOf = ({ ceiling, collected }: UserTruth, overage: bigint): bigint =>
  positive(ceiling - positive(overage - collected))

/** The included usage of the period after the account's. */
const nextUsage = ({ periodEnd }: Account, amount: bigint): Account['credits'][number] => ({
  id: 'next',
  kind: 'included',
  source: 'plan_adjustment',
  featureKey: null,
  amount: usdAttos(amount),
  remaining: usdAttos(amount),
  priority: 0,
  effectiveAt: periodEnd,
  expiresAt: null,
  expiredAt: null,
  createdAt: periodEnd,
  state: 'new',
})

/**
 * Checks that each ticket is charged once, and nothing else. Estimates of lost tickets are
 * adjustments and do not count as consumed.
 */
function ledgerProblem(
  { charged, userId }: UserTruth,
  { account }: Pick<CoreState, 'account'>,
): string | null {
  if (account.consumed === charged) return null
  return `${userId} was charged ${account.consumed} attos, the tickets cost ${charged}`
}

/**
 * Returns the part of the open calls that the credits do not cover, by the ledger's own arithmetic
 * on a copy.
 */
function shortfallOf(account: Account, { open, includedNext }: UserTruth): bigint {
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
  // Core enters the next period with the first call or ticket after its start.
  if (includedNext > 0n) copy.credits.unshift(nextUsage(account, includedNext))
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
