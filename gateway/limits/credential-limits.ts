import type { FastifyReply, FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import { fingerprint } from '../../core/lib/crypto.ts'
import { looksLikeToken } from '../../core/lib/foreign-tokens/form.ts'
import { DomainError, type Reason, reasons } from '../../proto/errors.ts'
import { bearerToken, isBearer, parseBasic } from '../auth/credentials.ts'
import { textMember } from '../http/body.ts'
import type { LimitSettings } from './config.ts'
import type { Counters, Reservation } from './counters.ts'
import { createWaitingRooms } from './waiting-rooms.ts'

/** How a request ended. */
export interface RequestEnd {
  readonly status: number
  /** Absent when nothing was refused. */
  readonly reason?: Reason | undefined
}

/** What a request proves itself with, and in whose name: hashes, never the texts. */
interface Credential {
  /** One credential on one route: a route that does not look at it proves nothing for another. */
  readonly name: string
  /** Whose failures it counts among: the client that it names, or itself when it names none. */
  readonly party: string
  /** Whether it is a JWT, which is remembered for a short time and in this process alone. */
  readonly isToken: boolean
  /** Whether that refusal is about this credential. */
  readonly isRefusedBy: (outcome: RequestEnd) => boolean
}

/** How one request, or one of its credentials, was let in. */
export interface CredentialAdmission {
  /** Whether its address had failed so often that it had to wait, and fails again with that refusal. */
  readonly isSlowed: (outcome: RequestEnd) => boolean
  /** Counts how it ended. */
  settle(outcome: RequestEnd): void
}

export interface CredentialLimitsDeps {
  readonly settings: LimitSettings
  readonly counters: Counters
  /** Writes the headers of a full bucket and throws RATE_LIMITED. */
  readonly refuse: (reply: FastifyReply, bucket: { name: string; limit: number }) => never
}

// At one address, of the credentials that nobody knows yet, once it has failed too often.
const slowed = { running: 4, waiting: 2_000 }
// Most JWTs expire within minutes, and each is another name: they must not evict secrets from the counters' memory.
const tokenMemory = { max: 10_000, ttl: 300_000 }

/**
 * Limits of wrong credentials (docs/operations.md, "Rate limits"). A credential that has worked in the last day is
 * *known*: what others do, at its address or in its client's name, never refuses it. Any other counts as a failure before
 * it is checked, so that parallel guesses count as well, and is taken back when it works: among the failures of its
 * address in the name of one client, which refuse when there are too many, and among all failures of its address, which
 * slow down and never refuse. Where only wrong credentials are limited, a JWT is none: it cannot be guessed, and an
 * expired one is no attack.
 */
export function createCredentialLimits({ settings, counters, refuse }: CredentialLimitsDeps) {
  const rooms = createWaitingRooms(slowed)
  const memory = createMemory(counters)
  /** Credentials that are being checked for the first time; others with the same one wait for the answer. */
  const firstChecks = new Map<string, Promise<void>>()

  const ofAddress = (address: string): string => `failed:${address}`
  const ofParty = (party: string, address: string): string => `failed:${party}:${address}`

  /** RATE_LIMITED when this address has failed too often in the name of a client. */
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
      // The caller's own comes first at every route, so that no two requests wait for each other.
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
    // Nothing is awaited between here and the start of the first check: of those at once, one is the first.
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
      limit: settings.failuresPerClient,
    }
    const ofParties = await counters.reserve(bucket.name)
    if (ofParties.sum > bucket.limit) {
      first.end()
      refuse(reply, bucket)
    }
    const ofAll = await counters.reserve(ofAddress(address))
    return {
      credential,
      isSlow: ofAll.sum > settings.failuresPerAddress,
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

/** Credentials that worked: secrets in the counters, for a day and all gateways; JWTs here. */
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

/** The caller's credential, and the key that it exchanges. */
const credentialsOf = (request: FastifyRequest): Credential[] =>
  [callerOf(request), subjectKeyOf(request)].filter((credential) => credential !== null)

/** The secret, key or token of the caller; null when it has none. One-time codes prove nothing for a second request. */
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

/** Whether the request shows a JWT at a route that limits nothing but wrong credentials. */
const isExempt = (request: FastifyRequest): boolean =>
  request.routeOptions.config.rules?.limit === 'failures' && showsToken(request)

/** Whether the caller shows a JWT. A route of one secret takes no JWT, but its secret may look like one. */
const showsToken = ({ headers, routeOptions }: FastifyRequest): boolean =>
  routeOptions.config.rules?.guard.kind !== 'secret' &&
  looksLikeToken(bearerToken(headers.authorization) ?? '')

/** The subject token of an exchange where it is a key; null for a JWT, which no guess is. */
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

/** What a request with a slowed address is told instead of the refusal of its credential. */
export const slowedRefusal = (): DomainError =>
  new DomainError('RATE_LIMITED', 'too many failed attempts from this address; wait a minute')
