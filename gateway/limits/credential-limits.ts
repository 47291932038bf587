import type { FastifyReply, FastifyRequest } from 'fastify'
import { fingerprint } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import { isBearer, parseBasic } from '../auth/credentials.ts'
import { textMember } from '../http/body.ts'
import type { LimitSettings } from './config.ts'
import type { Counters, Reservation } from './counters.ts'
import { createWaitingRooms } from './waiting-rooms.ts'

/** What a request proves itself with, and in whose name: hashes, never the texts. */
interface Credential {
  /** One credential on one route: a route that does not look at it proves nothing for another. */
  readonly name: string
  /** Whose failures it counts among: the client that it names, or itself when it names none. */
  readonly party: string
}

/** How one request was let in. */
export interface CredentialAdmission {
  /** Its address had failed so often that it had to wait: when it fails, it is told to wait longer. */
  readonly isSlowed: boolean
  /** Counts how it ended. */
  settle(status: number): void
}

export interface CredentialLimitsDeps {
  readonly settings: LimitSettings
  readonly counters: Counters
  /** Writes the headers of a full bucket and throws RATE_LIMITED. */
  readonly refuse: (reply: FastifyReply, bucket: { name: string; limit: number }) => never
}

// At one address, of the credentials that nobody knows yet, once it has failed too often.
const slowed = { running: 4, waiting: 2_000 }

/**
 * Limits of wrong credentials (docs/operations.md, "Rate limits"). A credential that has worked in the last day is
 * *known*: what others do, at its address or in its client's name, never refuses it. Any other counts as a failure before
 * it is checked, so that parallel guesses count as well, and is taken back when it works: among the failures of its
 * address in the name of one client, which refuse when there are too many, and among all failures of its address, which
 * slow down and never refuse.
 */
export function createCredentialLimits({ settings, counters, refuse }: CredentialLimitsDeps) {
  const rooms = createWaitingRooms(slowed)
  /** Credentials that are being checked for the first time; others with the same one wait for the answer. */
  const firstChecks = new Map<string, Promise<void>>()

  const ofAddress = (address: string): string => `failed:${address}`
  const ofParty = (party: string, address: string): string => `failed:${party}:${address}`

  /** RATE_LIMITED when this address has failed too often in the name of the client. */
  async function admit(
    request: FastifyRequest,
    reply: FastifyReply,
    address: string,
  ): Promise<CredentialAdmission> {
    const credential = credentialOf(request)
    if (credential === null) return withoutCredential(address)
    if (await counters.isRemembered(credential.name)) return known(credential, address)
    const check = firstChecks.get(credential.name)
    // Nothing is awaited between here and the start of the first check: of those at once, one is the first.
    if (check === undefined) return admitUnknown(reply, address, credential)
    await check
    return (await counters.isRemembered(credential.name))
      ? known(credential, address)
      : admitUnknown(reply, address, credential)
  }

  async function admitUnknown(
    reply: FastifyReply,
    address: string,
    credential: Credential,
  ): Promise<CredentialAdmission> {
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
    const isSlowed = ofAll.sum > settings.failuresPerAddress
    const settle = (status: number): void => {
      settleUnknown(status, { credential, reservations: [ofParties, ofAll] })
      first.end()
    }
    if (!isSlowed) return { isSlowed, settle }
    const leave = await rooms.enter(address).catch((error: unknown) => {
      settle(429)
      throw error
    })
    return {
      isSlowed,
      settle(status) {
        leave()
        settle(status)
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
    status: number,
    { credential, reservations }: { credential: Credential; reservations: readonly Reservation[] },
  ): void {
    if (status === 401) return
    for (const reservation of reservations) reservation.takeBack()
    if (status < 400) counters.remember(credential.name)
  }

  const known = ({ name, party }: Credential, address: string): CredentialAdmission => ({
    isSlowed: false,
    settle(status) {
      if (status < 400) counters.remember(name)
      if (status !== 401) return
      counters.forget(name)
      void counters.add(ofParty(party, address))
      void counters.add(ofAddress(address))
    },
  })

  const withoutCredential = (address: string): CredentialAdmission => ({
    isSlowed: false,
    settle(status) {
      if (status === 401) void counters.add(ofAddress(address))
    },
  })

  return { admit }
}

/** The secret, key or token of a request; null when it has none. One-time codes prove nothing for a second request. */
function credentialOf(request: FastifyRequest): Credential | null {
  const { headers, body, routeOptions } = request
  const authorization = headers.authorization ?? ''
  const pair = parseBasic(authorization) ?? pairOf(body)
  const text =
    pair === null
      ? isBearer(authorization)
        ? authorization
        : textMember(body, 'key')
      : JSON.stringify([pair.id, pair.secret])
  if (text === undefined) return null
  const name = fingerprint(`${routeOptions.url} ${text}`)
  return { name, party: pair === null ? name : fingerprint(pair.id) }
}

function pairOf(body: unknown) {
  if (Buffer.isBuffer(body)) return null
  const id = textMember(body, 'client_id')
  const secret = textMember(body, 'client_secret')
  return id === undefined || secret === undefined ? null : { id, secret }
}

/** What a request with a slowed address is told instead of the refusal of its credential. */
export const slowedRefusal = (): DomainError =>
  new DomainError('RATE_LIMITED', 'too many failed attempts from this address; wait a minute')
