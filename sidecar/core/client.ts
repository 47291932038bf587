import { type ClientReadableStream, Metadata } from '@grpc/grpc-js'
import type { JSONWebKeySet } from 'jose'
import { currentValue } from '../../core/lib/settings/reloadable.ts'
import { channelTo, unary } from '../../core/lib/grpc.ts'
import type { CoreAddress } from '../../core/lib/core-link/address.ts'
import type { Log } from '../../core/lib/log.ts'
import { serviceTokenHeader } from '../../proto/headers.ts'
import { EscrowServiceClient } from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import {
  type Decision as DecisionRecord,
  DecisionServiceClient,
} from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import {
  type IngestEventsResponse,
  MeteringServiceClient,
} from '../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import {
  SignerServiceClient,
  type VerifyApiKeyResponse,
  type VerifyForeignTokenResponse,
  type VerifySignerSessionResponse,
  type WatchInvalidationsResponse,
} from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import {
  type JsonWebKey,
  TokenServiceClient,
} from '../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import {
  type SignerSecret,
  SignersServiceClient,
} from '../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import { ReadinessServiceClient } from '../../proto/gen/ts-proto/tollgate/shared/v1/readiness.ts'
import { createEscrowCore, lookupMs } from './escrow.ts'
import { gatherUntilQuiet } from './batcher.ts'
import { createPresence } from './presence.ts'

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

const maxKeys = 200
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
  const readiness = new ReadinessServiceClient(target, credentials, channel)
  const headers = () => ({ [serviceTokenHeader]: currentValue(token) })
  const lookup = () => ({ deadlineMs: lookupMs, headers: headers() })

  const callVerify = presence.whilePresent(unary(signer.verifyApiKeys.bind(signer)))
  const callSession = presence.whilePresent(unary(signer.verifySignerSession.bind(signer)))
  const callForeign = presence.whilePresent(unary(signer.verifyForeignToken.bind(signer)))
  const callToken = presence.whilePresent(unary(signer.checkToken.bind(signer)))
  const callJwks = presence.whilePresent(unary(tokens.getJwks.bind(tokens)))
  const callSigners = unary(signers.listSignerSecrets.bind(signers))
  const callIngest = unary(metering.ingestEvents.bind(metering))

  /** Returns no identity for an invalid key. Concurrent keys share a request. */
  const verifyApiKey = gatherUntilQuiet<string, VerifyApiKeyResponse>({
    send: async (apiKeys) => (await callVerify({ apiKeys }, lookup())).answers,
    max: maxKeys,
  })

  const verifySignerSession = (session: string): Promise<VerifySignerSessionResponse> =>
    callSession({ token: session }, lookup())

  /** Returns a fault for an invalid token, or when its issuer does not answer. */
  const verifyForeignToken = (token: string): Promise<VerifyForeignTokenResponse> =>
    callForeign({ token }, lookup())

  /** Returns true when an id that the JWT descends from has ended. */
  const checkToken = async ({ jti, loginId, grants, issuedAt }: TokenIds): Promise<boolean> => {
    const ids = grants.filter((id) => id !== jti && id !== loginId)
    const token = { jti, loginId: loginId ?? '', grants: ids, issuedAt: BigInt(issuedAt) }
    return (await callToken(token, lookup())).revoked
  }

  async function getJwks(): Promise<JSONWebKeySet> {
    const { keys } = await callJwks({}, lookup())
    return { keys: keys.map(toJwk) }
  }

  const ingestEvents = (
    envelopes: Buffer[],
    correlationId: string,
  ): Promise<IngestEventsResponse> =>
    callIngest(
      { envelopes },
      { deadlineMs: ingestMs, headers: { ...headers(), 'x-correlation-id': correlationId } },
    )

  const recordDecisions = (records: DecisionRecord[]): Promise<unknown> =>
    unary(decisions.recordDecisions.bind(decisions))(
      { decisions: records },
      { deadlineMs: recordMs, headers: headers() },
    )

  /**
   * Returns core's time; null if core does not return it. Throws if core refuses the token of this
   * process.
   */
  async function readTime(): Promise<Date | null> {
    await callSigners({}, { deadlineMs: recordMs, headers: headers() })
    // A core of an earlier release returns no time to sidecars.
    const read = unary(readiness.getReadiness.bind(readiness))
    const { now } = await read({}, lookup()).catch(() => ({ now: '' }))
    return now === '' ? null : new Date(now)
  }

  const listSignerSecrets = async (): Promise<SignerSecret[]> =>
    (await callSigners({}, { deadlineMs: recordMs, headers: headers() })).secrets

  function watchInvalidations(): ClientReadableStream<WatchInvalidationsResponse> {
    const metadata = new Metadata()
    metadata.set(serviceTokenHeader, currentValue(token))
    return signer.watchInvalidations({}, metadata)
  }

  /** Resolves to true when a connection exists or can be made within `withinMs`. */
  function ready(withinMs: number): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>()
    signer.waitForReady(Date.now() + withinMs, (error) => resolve(!error))
    return promise
  }

  const stop = (): void =>
    [signer, signers, tokens, metering, escrow, decisions, readiness].forEach((client) =>
      client.close(),
    )

  return {
    verifyApiKey,
    verifySignerSession,
    verifyForeignToken,
    checkToken,
    escrow: createEscrowCore(escrow, presence, headers),
    getJwks,
    ingestEvents,
    recordDecisions,
    readTime,
    listSignerSecrets,
    watchInvalidations,
    ready,
    stop,
  }
}

export type CoreClient = ReturnType<typeof createCoreClient>

function toJwk({ kty, kid, alg, use, n, e, crv, x, y }: JsonWebKey): JSONWebKeySet['keys'][number] {
  return kty === 'EC'
    ? { kty, kid, alg, use, crv: crv ?? '', x: x ?? '', y: y ?? '' }
    : { kty, kid, alg, use, n: n ?? '', e: e ?? '' }
}
