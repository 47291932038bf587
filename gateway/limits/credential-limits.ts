import type { FastifyReply, FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import { createKeyedSemaphore } from '../../core/lib/concurrency.ts'
import { fingerprint } from '../../core/lib/crypto.ts'
import { looksLikeToken } from '../../core/lib/foreign-tokens/form.ts'
import { DomainError, type Reason, reasons } from '../../proto/errors.ts'
import { bearerToken, parseBasic } from '../auth/credentials.ts'
import { isBearer } from '../http/headers.ts'
import { textMember } from '../http/body.ts'
import { type Reloadable, currentValue } from '../../core/lib/settings/reloadable.ts'
import type { LimitSettings } from './config.ts'
import type { Counters, Reservation } from './counters.ts'

/** The outcome of a request. */
export interface RequestEnd {
  readonly status: number
  /** Absent if the request was not refused. */
  readonly reason?: Reason | undefined
}

/**
 * A credential that the request presents, and the party it counts for. Stores hashes, never the
 * texts.
 */
interface Credential {
  /**
   * Identifies the credential on one route, because a route that does not check it proves nothing
   * for another.
   */
  readonly name: string
  /** The counter of its failures: the client that it names, otherwise the credential itself. */
  readonly party: string
  /** Whether it is a JWT, which is remembered only briefly and in this process. */
  readonly isToken: boolean
  /** Whether the request was refused because of this credential. */
  readonly isRefusedBy: (outcome: RequestEnd) => boolean
}

/** Admission of a request, or of one of its credentials. */
export interface CredentialAdmission {
  /**
   * Whether the address had too many failures, so that the request had to wait, and it fails again
   * because of the credential.
   */
  readonly isSlowed: (outcome: RequestEnd) => boolean
  /** Counts the outcome. */
  settle(outcome: RequestEnd): void
}

export interface CredentialLimitsDeps {
  readonly settings: Reloadable<LimitSettings>
  readonly counters: Counters
  /** Writes the headers of a full bucket and throws RATE_LIMITED. */
  readonly refuse: (reply: FastifyReply, bucket: { name: string; limit: number }) => never
}

// Limits per address, after too many failures, for credentials that have not worked before.
const slowed = {
  running: 4,
  waiting: 2_000,
  refusal: () =>
    new DomainError('RATE_LIMITED', 'too many failed attempts from this address; try again later'),
}
// Most JWTs expire within minutes, and each has another name: they must not evict secrets from the
// counters' memory.
const tokenMemory = { max: 10_000, ttl: 300_000 }

/**
 * Limits wrong credentials (docs/limits.md, "Rate limits"). A credential that worked in the
 * last day is *known*: failures of other callers, at its address or under its client's name, never
 * cause its refusal. Any other counts as a failure before it is checked, so that parallel guesses
 * count as well, and is taken back if it works. It counts twice: for its address under one client's
 * name, where too many failures are refused, and for its address overall, where too many only slow
 * down. Routes that limit only wrong credentials do not count JWTs: they cannot be guessed, and an
 * expired one is not an attack.
 */
export function createCredentialLimits({ settings, counters, refuse }: CredentialLimitsDeps) {
  const rooms = createKeyedSemaphore(slowed)
  const memory = createMemory(counters)
  /** First checks in progress. Requests with the same credential wait for the result. */
  const firstChecks = new Map<string, Promise<void>>()

  const ofAddress = (address: string): string => `failed:${address}`
  const ofParty = (party: string, address: string): string => `failed:${party}:${address}`

  /** Throws RATE_LIMITED if this address has failed too often under a client's name. */
  async function admit(
    request: FastifyRequest,
    reply: FastifyReply,
    address: string,
  ): Promise<CredentialAdmission> {
    const credentials = credentialsOf(request)
    if (credentials.length === 0) return isExempt(request) ? exempt : withoutCredential(address)
    const admissions: SingleAdmission[] = []
    const settle = (outcome: RequestEnd): void =>
      admissions.forEach((admission) => admission.settle(outcome))
    try {
      // Always in this order, the caller's credential first, so that two requests cannot wait for
      // each other.
      for (const credential of credentials)
        admissions.push(await admitOne(reply, address, credential))
      const isSlow = admissions.some(({ isSlow }) => isSlow)
      const leave = isSlow ? await rooms.enter(address) : () => {}
      return {
        isSlowed: (outcome) =>
          admissions.some(({ isSlow, credential }) => isSlow && credential.isRefusedBy(outcome)),
        settle(outcome) {
          leave()
          settle(outcome)
        },
      }
    } catch (error) {
      settle({ status: 429 })
      throw error
    }
  }

  async function admitOne(
    reply: FastifyReply,
    address: string,
    credential: Credential,
  ): Promise<SingleAdmission> {
    if (await memory.has(credential)) return known(credential, address)
    const check = firstChecks.get(credential.name)
    // There is no await between here and the start of the first check, so only one of several
    // concurrent requests becomes the first.
    if (check === undefined) return admitUnknown(reply, address, credential)
    await check
    return (await memory.has(credential))
      ? known(credential, address)
      : admitUnknown(reply, address, credential)
  }

  async function admitUnknown(
    reply: FastifyReply,
    address: string,
    credential: Credential,
  ): Promise<SingleAdmission> {
    const first = startFirstCheck(credential)
    const bucket = {
      name: ofParty(credential.party, address),
      limit: currentValue(settings).failuresPerClient,
    }
    const ofParties = await counters.reserve(bucket.name)
    if (ofParties.sum > bucket.limit) {
      first.end()
      refuse(reply, bucket)
    }
    const ofAll = await counters.reserve(ofAddress(address))
    return {
      credential,
      isSlow: ofAll.sum > currentValue(settings).failuresPerAddress,
      settle(outcome) {
        settleUnknown(outcome, { credential, reservations: [ofParties, ofAll] })
        first.end()
      },
    }
  }

  function startFirstCheck({ name }: Credential) {
    const { promise, resolve } = Promise.withResolvers<void>()
    if (!firstChecks.has(name)) firstChecks.set(name, promise)
    const end = (): void => {
      if (firstChecks.get(name) === promise) firstChecks.delete(name)
      resolve()
    }
    return { end }
  }

  function settleUnknown(
    outcome: RequestEnd,
    { credential, reservations }: { credential: Credential; reservations: readonly Reservation[] },
  ): void {
    if (credential.isRefusedBy(outcome)) return
    for (const reservation of reservations) reservation.takeBack()
    if (outcome.status < 400) memory.add(credential)
  }

  const known = (credential: Credential, address: string): SingleAdmission => ({
    credential,
    isSlow: false,
    settle(outcome) {
      const { party, isRefusedBy } = credential
      if (outcome.status < 400) memory.add(credential)
      if (!isRefusedBy(outcome)) return
      memory.delete(credential)
      void counters.add(ofParty(party, address))
      void counters.add(ofAddress(address))
    },
  })

  const withoutCredential = (address: string): CredentialAdmission => ({
    isSlowed: () => false,
    settle(outcome) {
      if (isUnauthorized(outcome)) void counters.add(ofAddress(address))
    },
  })

  return { admit }
}

/**
 * Credentials that worked: secrets are stored in the counters, for a day and all gateways; JWTs
 * here.
 */
function createMemory(counters: Counters) {
  const tokens = new LRUCache<string, true>(tokenMemory)
  return {
    has: async ({ name, isToken }: Credential): Promise<boolean> =>
      isToken ? tokens.has(name) : counters.isRemembered(name),
    add({ name, isToken }: Credential): void {
      if (isToken) tokens.set(name, true)
      else counters.remember(name)
    },
    delete({ name, isToken }: Credential): void {
      if (isToken) tokens.delete(name)
      else counters.forget(name)
    },
  }
}

interface SingleAdmission {
  readonly credential: Credential
  readonly isSlow: boolean
  settle(outcome: RequestEnd): void
}

const exempt: CredentialAdmission = { isSlowed: () => false, settle: () => {} }

const isUnauthorized = ({ status, reason }: RequestEnd): boolean =>
  status === 401 || (reason !== undefined && reasons[reason].http === 401)

const isInvalidGrant = ({ reason }: RequestEnd): boolean => reason === 'GRANT_INVALID'

/** Returns the caller's credential and the key that it exchanges. */
const credentialsOf = (request: FastifyRequest): Credential[] =>
  [callerOf(request), subjectKeyOf(request)].filter((credential) => credential !== null)

/**
 * Returns the caller's secret, key or token; null if there is none. Ignores one-time codes, because
 * they prove nothing for a second request.
 */
function callerOf(request: FastifyRequest): Credential | null {
  if (isExempt(request)) return null
  const { headers, body } = request
  const authorization = headers.authorization ?? ''
  const pair = parseBasic(authorization) ?? pairOf(body)
  const text =
    pair === null
      ? isBearer(authorization)
        ? authorization
        : textMember(body, 'key')
      : JSON.stringify([pair.id, pair.secret])
  if (text === undefined) return null
  const name = nameOf(request, text)
  const party = pair === null ? name : fingerprint(pair.id)
  return { name, party, isToken: pair === null && showsToken(request), isRefusedBy: isUnauthorized }
}

/** Whether the request has a JWT on a route that limits only wrong credentials. */
const isExempt = (request: FastifyRequest): boolean =>
  request.routeOptions.config.rules?.limit === 'failures' && showsToken(request)

/**
 * Whether the caller presents a JWT. `secret` routes take no JWT, but their secret may look like
 * one.
 */
const showsToken = ({ headers, routeOptions }: FastifyRequest): boolean =>
  routeOptions.config.rules?.guard.kind !== 'secret' &&
  looksLikeToken(bearerToken(headers.authorization) ?? '')

/**
 * Returns the subject token of an exchange if it is a key; null for a JWT, which cannot be guessed.
 */
function subjectKeyOf(request: FastifyRequest): Credential | null {
  if (Buffer.isBuffer(request.body)) return null
  const text = textMember(request.body, 'subject_token')
  if (text === undefined || looksLikeToken(text)) return null
  const name = nameOf(request, `subject ${text}`)
  return { name, party: name, isToken: false, isRefusedBy: isInvalidGrant }
}

const nameOf = ({ routeOptions }: FastifyRequest, text: string): string =>
  fingerprint(`${routeOptions.url} ${text}`)

function pairOf(body: unknown) {
  if (Buffer.isBuffer(body)) return null
  const id = textMember(body, 'client_id')
  const secret = textMember(body, 'client_secret')
  return id === undefined || secret === undefined ? null : { id, secret }
}

/** Replaces the refusal of a credential when its address is slowed. */
export const slowedRefusal = (): DomainError =>
  new DomainError('RATE_LIMITED', 'too many failed attempts from this address; wait a minute')
