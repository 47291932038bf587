import { ChannelCredentials, type ClientReadableStream, Metadata } from '@grpc/grpc-js'
import type { JSONWebKeySet } from 'jose'
import { unary } from '../core/lib/grpc.ts'
import { serviceTokenHeader } from '../proto/headers.ts'
import {
  type IngestEventsResponse,
  MeteringServiceClient,
} from '../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import {
  type Access,
  type GetAccessRequest,
  SignerServiceClient,
  type VerifyApiKeyResponse,
  type VerifySignerSessionResponse,
  type WatchInvalidationsResponse,
} from '../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import {
  type JsonWebKey,
  TokenServiceClient,
} from '../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'

export interface CoreOptions {
  /** host:port of core. */
  readonly target: string
  readonly token: string
}

// Two calls in a row stay below two seconds, our promise to the signer.
const lookupMs = 800
const ingestMs = 8_000

const channel = {
  'grpc.keepalive_time_ms': 10_000,
  'grpc.keepalive_timeout_ms': 5_000,
  'grpc.keepalive_permit_without_calls': 1,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 2_000,
}

/**
 * The RPCs of core that the sidecar calls. Every call has a deadline. A refusal throws its
 * DomainError, an outage one with UNAVAILABLE.
 */
export function createCoreClient({ target, token }: CoreOptions) {
  const credentials = ChannelCredentials.createInsecure()
  const signer = new SignerServiceClient(target, credentials, channel)
  const tokens = new TokenServiceClient(target, credentials, channel)
  const metering = new MeteringServiceClient(target, credentials, channel)
  const headers = { [serviceTokenHeader]: token }
  const lookup = { deadlineMs: lookupMs, headers }

  const callVerify = unary(signer.verifyApiKey.bind(signer))
  const callSession = unary(signer.verifySignerSession.bind(signer))
  const callToken = unary(signer.checkToken.bind(signer))
  const callAccess = unary(signer.getAccess.bind(signer))
  const callJwks = unary(tokens.getJwks.bind(tokens))
  const callIngest = unary(metering.ingestEvents.bind(metering))

  const verifyApiKey = (apiKey: string): Promise<VerifyApiKeyResponse> =>
    callVerify({ apiKey }, lookup)

  const verifySignerSession = (session: string): Promise<VerifySignerSessionResponse> =>
    callSession({ token: session }, lookup)

  /** True when the JWT or its login was revoked. */
  const checkToken = async (jti: string, loginId: string): Promise<boolean> =>
    (await callToken({ jti, loginId }, lookup)).revoked

  async function getAccess(request: GetAccessRequest): Promise<Access> {
    const { access } = await callAccess(request, lookup)
    if (!access) throw new Error('core answered without an access')
    return access
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

  function watchInvalidations(): ClientReadableStream<WatchInvalidationsResponse> {
    const metadata = new Metadata()
    metadata.set(serviceTokenHeader, token)
    return signer.watchInvalidations({}, metadata)
  }

  /** True when there is a connection or one can be made within `withinMs`. */
  function ready(withinMs: number): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>()
    signer.waitForReady(Date.now() + withinMs, (error) => resolve(!error))
    return promise
  }

  const stop = (): void => [signer, tokens, metering].forEach((client) => client.close())

  return {
    verifyApiKey,
    verifySignerSession,
    checkToken,
    getAccess,
    getJwks,
    ingestEvents,
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
