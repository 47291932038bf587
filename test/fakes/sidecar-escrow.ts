import {
  type Authorisation,
  type EscrowServiceServer,
  EscrowServiceService,
  type LendAnswer,
  type LendCall,
  type PriceCeiling,
  LendAnswer as LendAnswers,
  type ReportRequest,
  type ReserveCall,
  ReserveAnswer,
  type SidecarProcess,
  type SessionCalls,
} from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type { Access } from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { type Answers, type State, refuse } from './sidecar-core.ts'

export { EscrowServiceService }

interface LentLease {
  readonly id: string
  readonly instance: string
  amount: bigint
  used: bigint
}

/** One user's holds, in atto-dollars. */
interface Holds {
  readonly leases: Map<string, LentLease>
  pending: bigint
  isRecalled: boolean
  readonly sessions: Map<string, Map<bigint, { seconds: bigint; nanos: number }>>
}

/** The process that began a session, and whether another one has joined it. */
interface Owner {
  readonly instance: string
  isShared: boolean
}

const attosPerMicro = 1_000_000_000_000n
const firstSlice = 50_000_000_000_000_000n
const max = (a: bigint, b: bigint): bigint => (a > b ? a : b)
const min = (a: bigint, b: bigint): bigint => (a < b ? a : b)

/** The state of the escrow double, and the settings of a test. */
export function createEscrowState() {
  return {
    leaseSeconds: 30,
    /** Milliseconds since core last heard from other processes. */
    unheardMs: 0,
    /** Whether it lends nothing, as to a user with limits. */
    lendsNothing: false,
    /** Whether another process owns the id of every sidecar. */
    isTaken: false,
    /** The limit that refuses every reserved call; "" refuses none. */
    limit: '',
    limitEndsAt: 0n,
    holds: new Map<string, Holds>(),
    owners: new Map<string, Owner>(),
    reports: [] as ReportRequest[],
    authorisations: [] as (Allowed & { readonly user: string })[],
    through: new Map<string, bigint>(),
    ceilings: [] as PriceCeiling[],
    /**
     * The plans' retail ratio in answers to `Lend`; `retailRatioNow` replaces it in `Reserve`, as
     * after a price change.
     */
    retailRatio: '',
    retailRatioNow: null as string | null,
    /** Price ceilings that only `Reserve` returns. */
    ceilingsOfKey: [] as PriceCeiling[],
  }
}

/** A minimal escrow, which detects a sidecar that spends more than it was lent. */
export function escrowService(
  state: State,
  answer: Answers,
  accessOf: (name: string) => Access,
): EscrowServiceServer {
  const { escrow, script } = state
  const nameOf = (user: { clientId: string; externalUserId: string }): string =>
    `${user.clientId}:${user.externalUserId}`

  function holdsOf(name: string): Holds {
    const known = escrow.holds.get(name)
    if (known) return known
    const holds: Holds = {
      leases: new Map(),
      pending: 0n,
      isRecalled: false,
      sessions: new Map(),
    }
    escrow.holds.set(name, holds)
    return holds
  }

  function freeOf(name: string): bigint {
    const { leases, pending } = holdsOf(name)
    const balance = (state.users.get(name)?.micros ?? 0n) * attosPerMicro
    const lent = [...leases.values()].reduce((sum, lease) => sum + lease.amount - lease.used, 0n)
    return balance - lent - pending
  }

  const rate = () =>
    script.usdPerEth === null
      ? undefined
      : { usdAttosPerEth: `${script.usdPerEth}${'0'.repeat(18)}`, observedAt: 0n, raised: false }

  function checkOwner(): void {
    if (escrow.isTaken) throw refuse('CONFLICT')
  }

  function lendOne(call: LendCall, { instance }: SidecarProcess): LendAnswer {
    const name = nameOf(call)
    const access = state.users.has(name) ? accessOf(name) : null
    if (!access) return LendAnswers.fromPartial({ refusal: 'NOT_FOUND' })
    const lease = access.active ? renew(name, call, instance) : null
    return LendAnswers.fromPartial({
      userId: access.userId,
      active: access.active,
      tokensValidAfter: access.tokensValidAfter,
      remainingUsdAttos: String(max(0n, freeOf(name))),
      lease: lease
        ? { id: lease.id, amountUsdAttos: String(lease.amount), seconds: escrow.leaseSeconds }
        : undefined,
      priorCall: priorCallOf(name, call),
      sharedSession: join(call.sessionId, instance),
      unheardMs: BigInt(escrow.unheardMs),
      ceilings: escrow.ceilings,
      retailRatio: escrow.retailRatio,
    })
  }

  function renew(name: string, call: LendCall, instance: string): LentLease | null {
    const holds = holdsOf(name)
    if (escrow.lendsNothing || holds.isRecalled) return null
    const own = holds.leases.get(instance)
    const used = own ? max(own.used, own.id === call.leaseId ? BigInt(call.usedUsdAttos) : 0n) : 0n
    const rest = own ? own.amount - used : 0n
    const free = freeOf(name)
    if (free < 0n) return null
    const bound = BigInt(call.boundUsdAttos)
    const useful = max(BigInt(call.spendingUsdAttos) * BigInt(escrow.leaseSeconds), bound * 4n)
    const slice = max(min(useful === 0n ? firstSlice : useful, (free + rest) / 4n), rest)
    if (slice < max(bound, 1_000_000_000n)) return null
    const lease = own ?? { id: crypto.randomUUID(), instance, amount: 0n, used: 0n }
    lease.amount += slice - rest
    lease.amount -= lease.amount % 1_000_000_000n
    holds.leases.set(instance, lease)
    return lease
  }

  function priorCallOf(name: string, { sessionId, sequence }: LendCall) {
    const calls = holdsOf(name).sessions.get(sessionId)
    const below = [...(calls ?? [])].filter(([number]) => number < sequence)
    const [highest] = below.toSorted(([a], [b]) => (a < b ? 1 : -1))
    return highest && { sequence: highest[0], ...highest[1] }
  }

  /** Returns whether another process serves the session, too. */
  function join(sessionId: string, instance: string): boolean {
    const owner = escrow.owners.get(sessionId)
    if (owner && owner.instance !== instance) owner.isShared = true
    return owner?.isShared ?? false
  }

  function remember(name: string, call: Allowed, instance: string): void {
    if (!escrow.owners.has(call.sessionId))
      escrow.owners.set(call.sessionId, { instance, isShared: false })
    join(call.sessionId, instance)
    const { sessions } = holdsOf(name)
    const calls = sessions.get(call.sessionId) ?? new Map()
    sessions.set(call.sessionId, calls)
    if (!calls.has(call.sequence))
      calls.set(call.sequence, { seconds: call.signedSeconds, nanos: call.signedNanos })
    // Limited, because a benchmark makes millions.
    if (escrow.authorisations.length < 100_000) escrow.authorisations.push({ ...call, user: name })
  }

  function reserveOne(call: ReserveCall, instance: string): ReserveAnswer {
    const name = nameOf(call)
    const { authorisation } = call
    const access = state.users.has(name) ? accessOf(name) : null
    const said = { userId: access?.userId ?? '', tokensValidAfter: access?.tokensValidAfter ?? 0n }
    const refusal =
      authorisation && access ? refusalOf(name, authorisation, access) : 'invalid_identity'
    if (refusal === '' && authorisation) {
      remember(name, authorisation, instance)
      holdsOf(name).pending += BigInt(authorisation.boundUsdAttos)
    }
    const recalled = refusal === 'insufficient_balance' && recall(name)
    const remainingUsdAttos = String(max(0n, freeOf(name)))
    return ReserveAnswer.fromPartial({
      ...said,
      refusal,
      limit: refusal === 'limit_exceeded' ? escrow.limit : '',
      limitEndsAt: escrow.limitEndsAt,
      ceilings: [...escrow.ceilings, ...escrow.ceilingsOfKey],
      recalled,
      remainingUsdAttos,
      retailRatio: escrow.retailRatioNow ?? escrow.retailRatio,
    })
  }

  function refusalOf(name: string, call: Authorisation, access: Access): string {
    if (!access.active) return 'user_inactive'
    if (escrow.limit !== '') return 'limit_exceeded'
    const now = escrow.retailRatioNow ?? escrow.retailRatio
    if (call.retailRatio !== undefined && call.retailRatio !== now) return 'price_changed'
    return freeOf(name) < BigInt(call.boundUsdAttos) ? 'insufficient_balance' : ''
  }

  function recall(name: string): boolean {
    const holds = holdsOf(name)
    if (holds.leases.size === 0) return false
    holds.isRecalled = true
    state.invalidate('lease', `user-of-${name}`)
    return true
  }

  function report(request: ReportRequest) {
    checkOwner()
    if (escrow.reports.length < 1_000) escrow.reports.push(request)
    const instance = request.sidecar?.instance ?? ''
    const through = escrow.through.get(instance) ?? 0n
    const isNext = request.number === through + 1n
    if (isNext) {
      apply(request, instance)
      escrow.through.set(instance, request.number)
    }
    const owned = [...escrow.owners].filter(([, owner]) => owner.instance === instance)
    return {
      through: isNext ? request.number : through,
      rate: rate(),
      recalled: [],
      sharedSessions: owned.flatMap(([id, owner]) => (owner.isShared ? [id] : [])),
      sharedThrough: 0n,
    }
  }

  function apply({ users }: ReportRequest, instance: string): void {
    for (const user of users) {
      const name = nameOf(user)
      const holds = holdsOf(name)
      const lease = holds.leases.get(instance)
      for (const session of user.sessions) {
        for (const call of callsOf(session)) remember(name, call, instance)
        const bound = session.boundUsdNanos.reduce((sum, nanos) => sum + nanos, 0n) * 10n ** 9n
        holds.pending += bound
        // Skip a lease that another core may have lent.
        if (lease?.id !== session.leaseId) continue
        if (lease.used + bound > lease.amount)
          throw new Error('a sidecar spent what it was not lent')
        lease.used += bound
      }
      for (const { leaseId, usedUsdAttos } of user.returned) {
        if (lease?.id !== leaseId) continue
        if (lease.used !== BigInt(usedUsdAttos)) throw new Error('a lease came back unaccounted')
        holds.leases.delete(instance)
      }
    }
  }

  return {
    lend: answer('lend', ({ sidecar, calls }) => {
      checkOwner()
      const process = sidecar ?? { id: '', instance: '' }
      return { answers: calls.map((call) => lendOne(call, process)), rate: rate() }
    }),
    reserve: answer('reserve', ({ sidecar, calls }) => {
      checkOwner()
      return { answers: calls.map((call) => reserveOne(call, sidecar?.instance ?? '')) }
    }),
    report: answer('report', report),
  }
}

type Allowed = Pick<
  Authorisation,
  | 'leaseId'
  | 'sessionId'
  | 'sequence'
  | 'signedSeconds'
  | 'signedNanos'
  | 'type'
  | 'boundUsdAttos'
  | 'keyId'
  | 'approximate'
  | 'offline'
>

/** Returns each call as if it had been reported separately. */
function callsOf({ sequence, signedMicros, boundUsdNanos, ...session }: SessionCalls): Allowed[] {
  const last = signedMicros.length - 1
  const nanosOf = (index: number, micros: bigint): number =>
    index === 0
      ? session.firstNanos
      : index === last
        ? session.lastNanos
        : Number(micros % 1_000_000n) * 1_000
  return signedMicros.map((micros, index) => ({
    ...session,
    sequence: sequence - BigInt(last - index),
    signedSeconds: micros / 1_000_000n,
    signedNanos: nanosOf(index, micros),
    boundUsdAttos: `${boundUsdNanos[index]}000000000`,
  }))
}
