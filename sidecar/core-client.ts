import { type ClientReadableStream, Metadata } from '@grpc/grpc-js'
import type { JSONWebKeySet } from 'jose'
import { channelTo, unary } from '../core/lib/grpc.ts'
import type { CoreAddress } from '../core/lib/core-link/address.ts'
import type { Log } from '../core/lib/log.ts'
import { serviceTokenHeader } from '../proto/headers.ts'
import { EscrowServiceClient } from '../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import {
  type Decision as DecisionRecord,
  DecisionServiceClient,
} from '../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import {
  type IngestEventsResponse,
  MeteringServiceClient,
} from '../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import {
  SignerServiceClient,
  type VerifyApiKeyResponse,
  type VerifyForeignTokenResponse,
  type VerifySignerSessionResponse,
  type WatchInvalidationsResponse,
} from '../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import {
  type JsonWebKey,
  TokenServiceClient,
} from '../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import {
  type SignerSecret,
  SignersServiceClient,
} from '../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import type { EscrowCore } from './accounts/escrow-core.ts'
import { gatherUntilQuiet } from './batcher.ts'
import { type Presence, createPresence } from './core-presence.ts'

/** Ids that a JWT of ours descends from, and when it was issued. */
export interface TokenIds {
  readonly jti: string
  /** The login's id (`sid`); null for a token without a login. */
  readonly loginId: string | null
  /** All ids, including these two: the end of any one ends the token. */
  readonly grants: readonly string[]
  /** Unix seconds. */
  readonly issuedAt: number
}

// Two calls in a row take less than two seconds, which the signer is promised.
const lookupMs = 800
const maxKeys = 200
const reportMs = 1_500
/** Longer than a decision waits: a lease that arrives late still pays for the following calls. */
const lendMs = 3_000
const recordMs = 1_000
const ingestMs = 8_000

const keepAlive = {
  'grpc.keepalive_time_ms': 10_000,
  'grpc.keepalive_timeout_ms': 5_000,
  'grpc.keepalive_permit_without_calls': 1,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 2_000,
}

/**
 * The RPCs of core that the sidecar calls. Every call has a deadline. A refusal throws its
 * DomainError, an outage throws one with UNAVAILABLE. While core is unavailable, calls that
 * decisions wait for fail immediately; reports and heartbeats are still sent.
 */
export function createCoreClient({ target, token, tls }: CoreAddress, log?: Log) {
  const { credentials, options } = channelTo(tls, log)
  const channel = { ...keepAlive, ...options }
  const signer = new SignerServiceClient(target, credentials, channel)
  const tokens = new TokenServiceClient(target, credentials, channel)
  const metering = new MeteringServiceClient(target, credentials, channel)
  const escrow = new EscrowServiceClient(target, credentials, channel)
  const decisions = new DecisionServiceClient(target, credentials, channel)
  const presence = createPresence()
  const signers = new SignersServiceClient(target, credentials, channel)
  const headers = { [serviceTokenHeader]: token }
  const lookup = { deadlineMs: lookupMs, headers }

  const callVerify = presence.whilePresent(unary(signer.verifyApiKeys.bind(signer)))
  const callSession = presence.whilePresent(unary(signer.verifySignerSession.bind(signer)))
  const callForeign = presence.whilePresent(unary(signer.verifyForeignToken.bind(signer)))
  const callToken = presence.whilePresent(unary(signer.checkToken.bind(signer)))
  const callJwks = presence.whilePresent(unary(tokens.getJwks.bind(tokens)))
  const callRecord = unary(decisions.recordDecisions.bind(decisions))
  const callSigners = unary(signers.listSignerSecrets.bind(signers))
  const callIngest = unary(metering.ingestEvents.bind(metering))

  /** Returns no identity for an invalid key. Concurrent keys share a request. */
  const verifyApiKey = gatherUntilQuiet<string, VerifyApiKeyResponse>({
    send: async (apiKeys) => (await callVerify({ apiKeys }, lookup)).answers,
    max: maxKeys,
  })

  const verifySignerSession = (session: string): Promise<VerifySignerSessionResponse> =>
    callSession({ token: session }, lookup)

  /** Returns a fault for an invalid token, or when its issuer does not answer. */
  const verifyForeignToken = (token: string): Promise<VerifyForeignTokenResponse> =>
    callForeign({ token }, lookup)

  /** Returns true when an id that the JWT descends from has ended. */
  const checkToken = async ({ jti, loginId, grants, issuedAt }: TokenIds): Promise<boolean> => {
    const ids = grants.filter((id) => id !== jti && id !== loginId)
    const token = { jti, loginId: loginId ?? '', grants: ids, issuedAt: BigInt(issuedAt) }
    return (await callToken(token, lookup)).revoked
  }

  async function getJwks(): Promise<JSONWebKeySet> {
    const { keys } = await callJwks({}, lookup)
    return { keys: keys.map(toJwk) }
  }

  const ingestEvents = (
    envelopes: Buffer[],
    correlationId: string,
  ): Promise<IngestEventsResponse> =>
    callIngest(
      { envelopes },
      { deadlineMs: ingestMs, headers: { ...headers, 'x-correlation-id': correlationId } },
    )

  const recordDecisions = (records: DecisionRecord[]): Promise<unknown> =>
    callRecord({ decisions: records }, { deadlineMs: recordMs, headers })

  const listSignerSecrets = async (): Promise<SignerSecret[]> =>
    (await callSigners({}, { deadlineMs: recordMs, headers })).secrets

  function watchInvalidations(): ClientReadableStream<WatchInvalidationsResponse> {
    const metadata = new Metadata()
    metadata.set(serviceTokenHeader, token)
    return signer.watchInvalidations({}, metadata)
  }

  /** Resolves to true when a connection exists or can be made within `withinMs`. */
  function ready(withinMs: number): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>()
    signer.waitForReady(Date.now() + withinMs, (error) => resolve(!error))
    return promise
  }

  const stop = (): void =>
    [signer, signers, tokens, metering, escrow, decisions].forEach((client) => client.close())

  return {
    verifyApiKey,
    verifySignerSession,
    verifyForeignToken,
    checkToken,
    escrow: createEscrowCore(escrow, presence, headers),
    getJwks,
    ingestEvents,
    recordDecisions,
    listSignerSecrets,
    watchInvalidations,
    ready,
    stop,
  }
}

export type CoreClient = ReturnType<typeof createCoreClient>

function createEscrowCore(
  client: EscrowServiceClient,
  { watched, whilePresent, within, isAway }: Presence,
  headers: Readonly<Record<string, string>>,
): EscrowCore {
  const lend = whilePresent(unary(client.lend.bind(client)), lookupMs)
  const reserve = whilePresent(unary(client.reserve.bind(client)))
  const report = watched(unary(client.report.bind(client)))
  return {
    lend: (request) => lend(request, { deadlineMs: lendMs, headers }),
    reserve: (request) => reserve(request, { deadlineMs: lookupMs, headers }),
    // A heartbeat has the same deadline as calls that decisions wait for; storing a batch may take
    // longer.
    report: (request) => {
      const isHeartbeat = request.number === 0n && !request.stopped
      return report(request, { deadlineMs: isHeartbeat ? lookupMs : reportMs, headers })
    },
    within: (work) => within(work, lookupMs),
    isAway,
  }
}

function toJwk({ kty, kid, alg, use, n, e, crv, x, y }: JsonWebKey): JSONWebKeySet['keys'][number] {
  return kty === 'EC'
    ? { kty, kid, alg, use, crv: crv ?? '', x: x ?? '', y: y ?? '' }
    : { kty, kid, alg, use, n: n ?? '', e: e ?? '' }
}
