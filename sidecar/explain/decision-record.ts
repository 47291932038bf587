import type {
  Decision as DecisionRecord,
  DecisionCredential,
  DecisionLease,
  DecisionMoney,
  DecisionSession,
  PriorDecisionCall,
} from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import { looksLikeToken } from '../../core/lib/foreign-tokens/form.ts'
import { parseObject, readText } from '../../core/lib/json.ts'
import type { Account, Lease } from '../wallets/accounts.ts'
import type { Escrow } from '../wallets/escrow.ts'
import type { Session, SignerTime } from '../signer-state/session.ts'
import { priorCall } from '../wallets/session-calls.ts'
import type { CallAtHand, Decision } from '../authorize/decision.ts'
import type { Occasion } from '../authorize/webhook.ts'
import { refusals } from '../decision/refusals.ts'
import type { AuthorizeBody } from '../decision/request.ts'
import type { VerifiedIdentity } from '../identity/bound-identity.ts'
import { type KeyShape, isSignerSession } from '../identity/verifiers/api-key.ts'

/** A decision to be recorded. */
export interface RecordedDecision {
  readonly id: string
  readonly occasion: Occasion
  /** Unix milliseconds. */
  readonly at: number
  /** Duration of the decision. */
  readonly ms: number
  readonly decision: Decision
  /** Null for a request that was not read. */
  readonly body: AuthorizeBody | null
}

/** Sources of the figures in records. */
export type RecordSources = Pick<
  Escrow,
  'core' | 'process' | 'memory' | 'bounds' | 'rate' | 'clocks'
>

/**
 * Returns a function that builds records of decisions just made, from the current state of their
 * users. Decisions without a record cost nothing.
 */
export function createRecordMaker(sources: RecordSources, shape: KeyShape) {
  const { core, process, memory, bounds, rate, clocks } = sources

  return ({ id, occasion, at, ms, decision, body }: RecordedDecision): DecisionRecord => ({
    id,
    sidecarId: process.id,
    decidedAt: new Date(at).toISOString(),
    durationMicros: Math.round(ms * 1000),
    status: decision.status,
    code: decision.code,
    reason: reasonOf(decision),
    occasion,
    rule: ruleOf(decision),
    credential: credentialOf({ decision, body, at, shape }),
    session: body?.session ? sessionOf(body.session, decision.call) : undefined,
    money: decision.call ? moneyOf(decision, decision.call) : undefined,
  })

  function sessionOf(session: Session, call: CallAtHand | null): DecisionSession {
    const { id, type, app, price, units, isReadable } = session
    const isPriced = price !== null && units !== null
    return {
      id,
      type,
      app,
      sequence: isReadable ? String(session.sequence) : undefined,
      lastUpdate: isReadable ? instantOf(session) : undefined,
      priceWei: isPriced ? String(price) : undefined,
      priceUnits: isPriced ? String(units) : undefined,
      priorCall: call && isReadable ? priorOf(call, session) : undefined,
    }
  }

  /** Undefined where the bound does not depend on time. */
  function priorOf({ account }: CallAtHand, session: Session): PriorDecisionCall | undefined {
    const { type, sequence, id } = session
    if (type !== 'live' && type !== 'lv2v') return undefined
    const unknownCall = { sequence: undefined, at: undefined }
    if (sequence === 0) return { ...unknownCall, source: 'none' }
    // Core is asked for the prior call of each call in a session shared with other processes.
    if (memory.isShared(id)) return { ...unknownCall, source: 'core' }
    const calls = memory.find(account, id)
    const prior = calls && priorCall(calls, sequence)
    return prior && !prior.isAssumed
      ? { sequence: String(prior.sequence), at: instantOf(prior), source: 'sidecar' }
      : { ...unknownCall, source: 'assumed' }
  }

  function moneyOf(
    { money, code, body }: Decision,
    { account, session }: CallAtHand,
  ): DecisionMoney {
    const at = clocks.mono()
    const bound = session && boundOf(account, session)
    return {
      source: money,
      boundUsdNanos: bound === null ? undefined : String(bound),
      accessAgeMs: account.readAt === 0 ? undefined : ageOf(at - account.readAt),
      ...remainingFigures(account, at),
      // A lease that paid the call has already been debited.
      lease: account.lease
        ? leaseOf(account.lease, money === 'lease' ? (bound ?? 0) : 0, at)
        : undefined,
      ...rateFigures(),
      limit: code === 'limit_exceeded' ? limitOf(body) : undefined,
      coreAway: core.isAway() || undefined,
    }
  }

  function remainingFigures({ remaining, remainingAt }: Account, at: number) {
    return remainingAt === 0
      ? { remainingUsdNanos: undefined, remainingAgeMs: undefined }
      : { remainingUsdNanos: String(remaining), remainingAgeMs: ageOf(at - remainingAt) }
  }

  function boundOf(account: Account, session: Session): number | null {
    if (!session.isReadable) return null
    const bound = bounds.boundOf(account, session)
    return typeof bound === 'number' ? Math.min(bound, Number.MAX_SAFE_INTEGER) : null
  }

  function rateFigures(): Pick<DecisionMoney, 'usdPerEth' | 'rateAgeMs' | 'rateRaised'> {
    const { nanosPerWei, observedAt, isRaised } = rate
    if (nanosPerWei === null)
      return { usdPerEth: undefined, rateAgeMs: undefined, rateRaised: undefined }
    return {
      usdPerEth: String(Number((nanosPerWei * 1e9).toPrecision(12))),
      rateAgeMs: ageOf(clocks.wall() - observedAt),
      rateRaised: isRaised,
    }
  }
}

const leaseOf = (
  { id, amount, used, endsAt, renewedAt }: Lease,
  paid: number,
  at: number,
): DecisionLease => ({
  id,
  amountUsdNanos: String(amount),
  leftUsdNanos: String(amount - used + paid),
  ageMs: ageOf(at - renewedAt),
  endsInMs: ageOf(endsAt - at),
})

const longestAge = 2 ** 32 - 1
// An operator's own verifier may return any time.
const ageOf = (ms: number): number =>
  Number.isFinite(ms) ? Math.min(Math.max(0, Math.round(ms)), longestAge) : 0

const instantOf = ({ seconds, nanos }: SignerTime): string =>
  `${new Date(seconds * 1000).toISOString().slice(0, 19)}.${String(nanos).padStart(9, '0')}Z`

/** The identity of the credential, even if it was refused. */
export const toIdentity = ({ call, detail }: Decision): VerifiedIdentity | null =>
  call ? call.identity : (detail?.identity ?? null)

interface Presented extends Pick<RecordedDecision, 'decision' | 'body' | 'at'> {
  readonly shape: KeyShape
}

function credentialOf({ decision, body, at, shape }: Presented): DecisionCredential {
  const identity = toIdentity(decision)
  const kind = body ? kindOf(body, { hasUser: identity !== null, shape }) : 'unread'
  return identity
    ? {
        kind,
        id: identity.keyId ?? undefined,
        issuer: identity.issuer,
        clientId: identity.clientId,
        externalUserId: identity.externalUserId,
        source: decision.call ? decision.source : 'token',
        ageMs: identity.verifiedAt === undefined ? 0 : ageOf(at - identity.verifiedAt),
      }
    : {
        kind,
        id: undefined,
        issuer: undefined,
        clientId: undefined,
        externalUserId: undefined,
        source: undefined,
        ageMs: undefined,
      }
}

function kindOf(
  { credential }: AuthorizeBody,
  { hasUser, shape }: { readonly hasUser: boolean; readonly shape: KeyShape },
): string {
  if (credential.kind !== 'given') return hasUser ? 'headers' : credential.kind
  if (isSignerSession(credential.text)) return 'signer_session'
  if (shape.looksLikeKey(credential.text)) return 'api_key'
  return looksLikeToken(credential.text) ? 'token' : 'other'
}

// Two refusals with one code differ in their reasons, and so in their bodies.
const rules: ReadonlyMap<string, string> = new Map(
  Object.entries(refusals).map(([name, { body }]) => [body, snakeCase(name)]),
)

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}

function ruleOf({ status, code, body, call, detail }: Decision): string {
  if (status === 200) return 'allowed'
  if (detail) return detail.rule
  // The user is known, so the token was verified: it is refused because of its issue time.
  if (code === 'invalid_token' && call) return 'void_token'
  return rules.get(body) ?? code
}

const reasonOf = ({ status, body }: Decision): string =>
  status === 200 ? '' : readText(parseObject(body)?.['reason'])

// The reason contains the limit: `limit usd_per_day: the USD of this day are used up`.
const limitOf = (body: string): string =>
  /^limit (\w+):/.exec(readText(parseObject(body)?.['reason']))?.[1] ?? ''
