import { DomainError, type Reason } from '../../../proto/errors.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { type UsdAttos, networkRatio, parseInteger, usdAttos } from '../../lib/money.ts'
import { toSeconds } from '../../lib/time.ts'
import type { BoundRate } from '../../metering/rates/bound-rate.ts'
import { isUuid } from '../../shared/ids.ts'
import { member, operator, orOperator, platformAdmin, serviceCaller } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Breach } from '../limits/limits.ts'
import { renderCeiling } from '../limits/wire.ts'
import type { Holds } from './holds.ts'
import type { SidecarProcess } from './port.ts'
import { toMicros } from './reports/reporting.ts'
import type { EscrowService, LendMessage, ReportMessage, ReserveMessage } from './service.ts'

/** Bounds a request, because one transaction locks all of its users. */
const callsMax = 1_000
const entriesMax = 5_000
/** Bounds the calls that are reported together, because core lists their numbers. */
const callsTogetherMax = 100
const idBytes = 200
const sessionBytes = 512
const attosPerNano = 1_000_000_000n

export interface EscrowRpcDeps {
  readonly escrow: EscrowService
  readonly holds: Holds
}

// A report names up to 2,000 calls.
const messageMaxBytes = 4 * 1024 * 1024

export function createEscrowRpc({ escrow, holds }: EscrowRpcDeps) {
  const escrowService: Handlers<pb.EscrowServiceServer> = {
    lend: rpc(serviceCaller('sidecar'), async (request: pb.LendRequest) => {
      const { answers, rate } = await escrow.lend(parseLend(request))
      return { answers: answers.map(toLendAnswer), rate: toRate(rate) }
    }),
    reserve: rpc(serviceCaller('sidecar'), async (request: pb.ReserveRequest) => ({
      answers: (await escrow.reserve(parseReserve(request))).map(toReserveAnswer),
    })),
    report: rpc(
      serviceCaller('sidecar'),
      async (request: pb.ReportRequest) => {
        const { through, recalled, shared, sharedThrough, rate } = await escrow.report(
          parseReport(request),
        )
        return {
          through,
          recalled,
          sharedSessions: shared,
          sharedThrough: BigInt(sharedThrough.getTime()),
          rate: toRate(rate),
        }
      },
      { messageMaxBytes },
    ),
  }
  const holdService: Handlers<pb.HoldServiceServer> = {
    listHolds: rpc(
      orOperator(platformAdmin(), operator()),
      async (request: pb.ListHoldsRequest) => {
        const { users, nextCursor } = await holds.list(request)
        return { users: users.map(toUserHolds), nextCursor }
      },
    ),
    getUserHolds: rpc(member('read'), async (request: pb.GetUserHoldsRequest, { appId }) => {
      const { holder, ...times } = await holds.findOfUser(appId, request.externalUserId)
      return { ...times, holds: holder === null ? undefined : toUserHolds(holder) }
    }),
    listSidecars: rpc(
      orOperator(platformAdmin(), operator()),
      async (_request: pb.ListSidecarsRequest) => ({
        sidecars: (await holds.sidecars()).map(toSidecar),
      }),
    ),
  }
  return { escrowService, holdService }
}

const toSidecar = (sidecar: Awaited<ReturnType<Holds['sidecars']>>[number]): pb.SidecarStream => ({
  id: sidecar.id,
  seenAt: sidecar.seenAt.toISOString(),
  stopped: sidecar.stoppedAt !== null,
  lastAuthorisedAt: sidecar.lastAuthorisedAt?.toISOString(),
  bookedThrough: sidecar.bookedThrough?.toISOString(),
  secondsBehind: Math.round(sidecar.seconds),
  stalled: sidecar.isStalled,
})

type HoldsOfUser = Awaited<ReturnType<Holds['list']>>['users'][number]

const toUserHolds = (user: HoldsOfUser): pb.UserHolds => ({
  clientId: user.clientId,
  externalUserId: user.externalUserId,
  userId: user.userId,
  balanceUsdAttos: user.balance.toString(),
  lentUsdAttos: user.lent.toString(),
  pendingUsdAttos: user.pending.toString(),
  pendingCount: user.pendingCount.toString(),
  leases: user.leases.map((lease) => ({
    id: lease.id,
    sidecarId: lease.sidecarId,
    amountUsdAttos: lease.amount.toString(),
    usedUsdAttos: lease.used.toString(),
    endsAt: lease.endsAt.toISOString(),
    recalled: lease.recalledAt !== null,
  })),
  pending: user.calls.map((call) => ({
    sessionId: call.sessionId,
    sequence: call.sequence.toString(),
    type: call.sessionType,
    sidecarId: call.sidecarId,
    boundUsdAttos: call.bound.toString(),
    authorisedAt: call.authorisedAt.toISOString(),
    proven: call.isProven,
    ticketed: call.isTicketed,
    calls: call.calls,
  })),
})

type LendAnswer = Awaited<ReturnType<EscrowService['lend']>>['answers'][number]
type ReserveAnswer = Awaited<ReturnType<EscrowService['reserve']>>[number]

function toLendAnswer(settled: LendAnswer): pb.LendAnswer {
  if (!settled.answer) return { ...emptyLendAnswer, refusal: settled.denial }
  const { user, answer } = settled
  return {
    refusal: '',
    userId: user.userId,
    active: user.status === 'active',
    tokensValidAfter: validAfter(user.tokensValidAfter),
    remainingUsdAttos: answer.remaining.toString(),
    canSpend: answer.canSpend,
    spendRefusal: answer.spendRefusal ?? '',
    lease: answer.lease
      ? {
          id: answer.lease.id,
          amountUsdAttos: answer.lease.amount.toString(),
          seconds: answer.lease.seconds,
        }
      : undefined,
    priorCall: answer.session?.prior ?? undefined,
    sharedSession: answer.session?.isShared ?? false,
    unheardMs: BigInt(Math.ceil(answer.unheardMs)),
    ceilings: answer.ceilings.map(renderCeiling),
    retailRatio: renderRatio(answer.retailRatio),
  }
}

/** Empty for network price, as for nearly all users. */
const renderRatio = (ratio: bigint): string => (ratio === networkRatio ? '' : ratio.toString())

const emptyLendAnswer: pb.LendAnswer = {
  refusal: '',
  userId: '',
  active: false,
  tokensValidAfter: 0n,
  remainingUsdAttos: '0',
  canSpend: false,
  spendRefusal: '',
  lease: undefined,
  priorCall: undefined,
  sharedSession: false,
  unheardMs: 0n,
  ceilings: [],
  retailRatio: '',
}

function toReserveAnswer(settled: ReserveAnswer): pb.ReserveAnswer {
  if (!settled.answer) return { ...emptyReserveAnswer, refusal: wordOf(settled.denial) }
  const { user, answer } = settled
  return {
    refusal: answer.refusal ?? '',
    ownerRefusal: answer.ownerRefusal ?? '',
    ...limitOf(answer.breach),
    ceilings: answer.ceilings.map(renderCeiling),
    recalled: answer.isRecalled,
    remainingUsdAttos: answer.remaining.toString(),
    userId: user.userId,
    tokensValidAfter: validAfter(user.tokensValidAfter),
    retailRatio: renderRatio(answer.retailRatio),
  }
}

// Sidecars use this word for a subject that is not a user.
const wordOf = (denial: Reason): string =>
  denial === 'NOT_FOUND' ? 'invalid_identity' : denial.toLowerCase()

const limitOf = (breach: Breach | null) => ({
  limit: breach?.limit ?? '',
  limitEndsAt: BigInt(breach?.endsAt?.getTime() ?? 0),
})

const emptyReserveAnswer: pb.ReserveAnswer = {
  refusal: '',
  ownerRefusal: '',
  ...limitOf(null),
  ceilings: [],
  recalled: false,
  remainingUsdAttos: '0',
  userId: '',
  tokensValidAfter: 0n,
  retailRatio: '',
}

const validAfter = (instant: Date | null): bigint => BigInt(instant ? toSeconds(instant) : 0)

const toRate = (rate: BoundRate | null): pb.Rate | undefined =>
  rate
    ? {
        usdAttosPerEth: rate.usdAttosPerEth.toString(),
        observedAt: BigInt(rate.observedAt.getTime()),
        raised: rate.isRaised,
      }
    : undefined

const invalid = (problem: string): DomainError => new DomainError('REQUEST_INVALID', problem)

function bounded<T>(items: readonly T[], max: number, what: string): readonly T[] {
  if (items.length > max) throw invalid(`at most ${max} ${what} at once`)
  return items
}

function parseProcess(process: pb.SidecarProcess | undefined): SidecarProcess {
  if (!process) throw invalid('sidecar is required')
  const { id, instance } = process
  if (!isUuid(instance)) throw invalid('sidecar.instance must be a UUID in lower case')
  return { id: parseText('sidecar.id', id, idBytes), instance }
}

function parseText(name: string, text: string, maxBytes: number): string {
  if (text === '' || Buffer.byteLength(text) > maxBytes || /[\0\p{Cs}]/u.test(text))
    throw invalid(`${name} must be 1 to ${maxBytes} bytes of text without NUL`)
  return text
}

const parseOptionalText = (name: string, text: string): string =>
  text === '' ? '' : parseText(name, text, idBytes)

function parseAttos(name: string, text: string): UsdAttos {
  const value = parseInteger(text)
  if (value === null) throw invalid(`${name} must be whole atto-dollars, decimal`)
  return usdAttos(value)
}

/** Parses a bound: a whole number of nano-dollars, at least one. */
function parseBound(name: string, text: string): UsdAttos {
  const bound = parseAttos(name, text)
  if (bound < attosPerNano || bound % attosPerNano !== 0n)
    throw invalid(`${name} must be a multiple of ${attosPerNano}, and not 0`)
  return bound
}

function parseAge(name: string, millis: number): number {
  if (millis < 0 || !Number.isSafeInteger(millis)) throw invalid(`${name} must not be negative`)
  return millis
}

function parseInstant(name: string, millis: bigint): Date {
  const instant = new Date(Number(millis))
  if (millis < 0n || Number.isNaN(instant.getTime()))
    throw invalid(`${name} must be Unix milliseconds`)
  return instant
}

function parseSequence(sequence: bigint): bigint {
  if (sequence < 0n) throw invalid('sequence must not be negative')
  return sequence
}

const parseLeaseId = (id: string): string | null => {
  if (id !== '' && !isUuid(id)) throw invalid('lease_id must be a UUID in lower case')
  return id === '' ? null : id
}

/** Returns null for identities of other issuers, which have no key here. */
const parseKeyId = (id: string): string | null => (isUuid(id) ? id : null)

/** Returns null if the ratio is absent. */
function parseRatio(text: string | undefined): bigint | null {
  if (text === undefined) return null
  const ratio = text === '' ? networkRatio : parseInteger(text)
  if (ratio === null) throw invalid('retail_ratio must be a ratio scaled by 10^18, decimal')
  return ratio
}

/**
 * Returns null for a price that cannot be compared with a ceiling, so that the report does not
 * fail.
 */
function parsePrice({ priceWei, priceUnits }: pb.Authorisation) {
  const [wei, units] = [parseInteger(priceWei), parseInteger(priceUnits)]
  return wei === null || units === null || units === 0n ? null : { wei, units }
}

const subjectOf = ({
  clientId,
  externalUserId,
}: {
  readonly clientId: string
  readonly externalUserId: string
}) => ({ clientId, externalUserId })

const parseLend = ({ sidecar, calls }: pb.LendRequest): LendMessage => ({
  process: parseProcess(sidecar),
  calls: bounded(calls, callsMax, 'calls').map((call) => ({
    ...subjectOf(call),
    leaseId: parseLeaseId(call.leaseId),
    used: parseAttos('used_usd_attos', call.usedUsdAttos),
    bound: parseAttos('bound_usd_attos', call.boundUsdAttos),
    spending: parseAttos('spending_usd_attos', call.spendingUsdAttos),
    session:
      call.sessionId === ''
        ? null
        : {
            id: parseText('session_id', call.sessionId, sessionBytes),
            sequence: parseSequence(call.sequence),
          },
  })),
})

const parseReserve = ({ sidecar, calls }: pb.ReserveRequest): ReserveMessage => ({
  process: parseProcess(sidecar),
  calls: bounded(calls, callsMax, 'calls').map((call) => {
    if (!call.authorisation) throw invalid('authorisation is required')
    const soldAt = parseRatio(call.authorisation.retailRatio)
    return { ...subjectOf(call), ...parseAuthorisation(call.authorisation), soldAt }
  }),
})

function parseReport(request: pb.ReportRequest): ReportMessage {
  const { sidecar, number, users, stopped } = request
  if (users.some(({ authorisations }) => authorisations.length > 0))
    throw invalid(
      'users.authorisations is no longer accepted, because calls are reported by session; upgrade this sidecar to the release of core',
    )
  bounded(
    users.flatMap((user) => [...user.sessions, ...user.refused, ...user.returned]),
    entriesMax,
    'sessions, refused calls and returned leases',
  )
  if (number < 0n) throw invalid('number must not be negative')
  if (number === 0n && users.length > 0) throw invalid('a heartbeat has no content')
  return {
    process: parseProcess(sidecar),
    number,
    stopped,
    unreportedMs: parseAge('unreported_ms', Number(request.unreportedMs)),
    sharedThrough: parseInstant('shared_through', request.sharedThrough),
    users: bounded(users, entriesMax, 'users').map((user) => ({
      ...subjectOf(user),
      calls: user.sessions.map(parseSessionCalls),
      refused: user.refused.map(({ sessionId, sequence }) => ({
        sessionId: parseText('session_id', sessionId, sessionBytes),
        sequence: parseSequence(sequence),
      })),
      returned: user.returned.map(({ leaseId, usedUsdAttos }) => ({
        leaseId: parseLeaseId(leaseId) ?? '',
        used: parseAttos('used_usd_attos', usedUsdAttos),
      })),
    })),
  }
}

// The range of Go's time.Time that Postgres can store, too: the years 1 to 9999.
const secondsMin = -62_135_596_800n
const secondsMax = 253_402_300_799n
const nanosMax = 999_999_999
const microsMin = secondsMin * 1_000_000n
const microsMax = (secondsMax + 1n) * 1_000_000n - 1n

function parseSigned(name: string, seconds: bigint, nanos: number) {
  if (seconds < secondsMin || seconds > secondsMax)
    throw invalid(`${name}_seconds must be Unix seconds of the years 1 to 9999`)
  if (nanos < 0 || nanos > nanosMax) throw invalid(`${name}_nanos must be from 0 to ${nanosMax}`)
  return { seconds, nanos }
}

type ReserveCallMessage = Omit<
  ReserveMessage['calls'][number],
  'clientId' | 'externalUserId' | 'soldAt'
>

function parseAuthorisation(call: pb.Authorisation): ReserveCallMessage {
  const signed = parseSigned('signed', call.signedSeconds, call.signedNanos)
  // Unused, but validated as in a report.
  parseLeaseId(call.leaseId)
  return {
    sessionId: parseText('session_id', call.sessionId, sessionBytes),
    sequence: parseSequence(call.sequence),
    signed,
    signedMicros: toMicros(signed),
    sessionType: parseOptionalText('type', call.type),
    bound: parseBound('bound_usd_attos', call.boundUsdAttos),
    // Only compared, never stored.
    app: call.app,
    price: parsePrice(call),
    keyId: parseKeyId(call.keyId),
    isApproximate: call.approximate,
    isOffline: call.offline,
  }
}

type ReportedMessage = ReportMessage['users'][number]['calls'][number]

function parseSessionCalls(session: pb.SessionCalls): ReportedMessage {
  const { signedMicros: micros, approximate } = session
  const sequence = parseSequence(session.sequence)
  const calls = micros.length
  if (calls < 1 || calls > callsTogetherMax || BigInt(calls) > sequence + 1n)
    throw invalid(
      `signed_micros must have 1 to ${callsTogetherMax} entries, and at most sequence + 1`,
    )
  if (session.boundUsdNanos.length !== calls)
    throw invalid('bound_usd_nanos must have as many entries as signed_micros')
  if (approximate && calls > 1) throw invalid('approximate calls must be reported one by one')
  const bounds = session.boundUsdNanos.map(parseNanos)
  const first = parseSigned('first', session.firstSeconds, session.firstNanos)
  const last = parseSigned('last', session.lastSeconds, session.lastNanos)
  if (micros.some((micro) => micro < microsMin || micro > microsMax))
    throw invalid('signed_micros must be Unix microseconds of the years 1 to 9999')
  const firstAgeMs = parseAge('first_age_millis', session.firstAgeMillis)
  return {
    leaseId: parseLeaseId(session.leaseId),
    sessionId: parseText('session_id', session.sessionId, sessionBytes),
    sequence,
    micros,
    bounds,
    bound: usdAttos(bounds.reduce((sum: bigint, bound) => sum + bound, 0n)),
    first,
    last,
    sessionType: parseOptionalText('type', session.type),
    keyId: parseKeyId(session.keyId),
    isApproximate: approximate,
    isOffline: session.offline,
    firstAgeMs,
    lastAgeMs: Math.min(firstAgeMs, parseAge('last_age_millis', session.lastAgeMillis)),
  }
}

function parseNanos(nanos: bigint): UsdAttos {
  if (nanos < 1n) throw invalid('bound_usd_nanos must not be 0 or negative')
  return usdAttos(nanos * attosPerNano)
}
