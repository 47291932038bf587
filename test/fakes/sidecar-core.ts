import {
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js'
import { type JSONWebKeySet } from 'jose'
import { type Reason, reasonTrailer, reasons } from '../../proto/errors.ts'
import {
  type IngestEventsRequest,
  type IngestEventsResponse,
  type MeteringServiceServer,
  MeteringServiceService,
} from '../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import {
  Access,
  type SignerServiceServer,
  SignerServiceService,
  type WatchInvalidationsRequest,
  type WatchInvalidationsResponse,
} from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import {
  type TokenServiceServer,
  TokenServiceService,
} from '../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'

export interface ScriptedKey {
  clientId: string
  externalUserId: string
  keyId: string
}

/** A refusal that a scripted answer may throw. */
export const refuse = (reason: Reason): { reason: Reason } => ({ reason })

const attosPerMicro = 1_000_000_000_000n

/**
 * Core as the sidecar sees it: a gRPC server whose answers a test sets and whose calls it
 * counts.
 */
export async function startCoreDouble(port = 0) {
  const keys = new Map<string, ScriptedKey>()
  const sessions = new Map<string, ScriptedKey & { expiresAt: bigint }>()
  const revoked = new Set<string>()
  const users = new Map<string, Partial<Access> & { micros: bigint }>()
  const calls = {
    verifyApiKey: 0,
    verifySignerSession: 0,
    checkToken: 0,
    getAccess: 0,
    getJwks: 0,
    ingestEvents: 0,
    tokens: new Set<string>(),
  }
  const script = {
    usdPerEth: 3000n as bigint | null,
    delayMs: 0,
    failing: false,
    jwks: { keys: [] } as JSONWebKeySet,
    ingested: [] as Buffer[],
    ingest: (request: IngestEventsRequest): IngestEventsResponse => ({
      tickets: request.envelopes.length,
      duplicates: 0,
      ignored: 0,
      quarantined: 0,
    }),
  }
  const watchers = new Set<
    ServerWritableStream<WatchInvalidationsRequest, WatchInvalidationsResponse>
  >()

  function accessOf(name: string): Access {
    const user = users.get(name)
    if (!user) throw refuse('NOT_FOUND')
    const { micros, ...overrides } = user
    return Access.fromPartial({
      active: true,
      tokensValidAfter: 0n,
      remainingUsdAttos: (micros * attosPerMicro).toString(),
      usdAttosPerEth:
        script.usdPerEth === null ? undefined : (script.usdPerEth * 10n ** 18n).toString(),
      userId: `user-of-${name}`,
      consumedUsdAttos: '0',
      ...overrides,
    })
  }

  function answer<Request, Response>(
    name: keyof typeof calls,
    work: (request: Request) => Response,
  ) {
    return (call: ServerUnaryCall<Request, Response>, done: sendUnaryData<Response>): void => {
      const counted = calls[name]
      if (typeof counted === 'number') Object.assign(calls, { [name]: counted + 1 })
      calls.tokens.add(String(call.metadata.get('x-tollgate-service-token')[0]))
      setTimeout(() => {
        try {
          if (script.failing) throw refuse('INTERNAL')
          done(null, work(call.request))
        } catch (error) {
          done(toServiceError(error))
        }
      }, script.delayMs)
    }
  }

  const signer: SignerServiceServer = {
    verifyApiKey: answer('verifyApiKey', ({ apiKey }) => {
      const key = keys.get(apiKey)
      if (!key) throw refuse('TOKEN_INVALID')
      const name = `${key.clientId}:${key.externalUserId}`
      return { identity: { ...key, userId: `user-of-${name}` }, access: accessOf(name) }
    }),
    verifySignerSession: answer('verifySignerSession', ({ token }) => {
      const session = sessions.get(token)
      if (!session) throw refuse('TOKEN_INVALID')
      const name = `${session.clientId}:${session.externalUserId}`
      return {
        identity: { ...session, userId: `user-of-${name}` },
        access: accessOf(name),
        expiresAt: session.expiresAt,
        scope: 'sign:job',
      }
    }),
    getAccess: answer('getAccess', ({ clientId, externalUserId }) => ({
      access: accessOf(`${clientId}:${externalUserId}`),
    })),
    checkToken: answer('checkToken', ({ jti, loginId }) => ({
      revoked: revoked.has(jti) || revoked.has(loginId),
    })),
    watchInvalidations: (call) => {
      call.sendMetadata(new Metadata())
      watchers.add(call)
      call.on('cancelled', () => watchers.delete(call))
    },
  }
  const unimplemented = answer<unknown, never>('tokens', () => {
    throw refuse('INTERNAL')
  })
  const tokens: TokenServiceServer = {
    issueMachineToken: unimplemented,
    mintUserToken: unimplemented,
    mintUserTokens: unimplemented,
    exchangeApiKey: unimplemented,
    rotateSigningKeys: unimplemented,
    listSigningKeys: unimplemented,
    getJwks: answer('getJwks', () => ({
      keys: script.jwks.keys.map(({ kty = '', kid = '', alg = '', use = '', n, e, crv, x, y }) => ({
        kty,
        kid,
        alg,
        use,
        n,
        e,
        crv,
        x,
        y,
      })),
    })),
  }
  const metering: MeteringServiceServer = {
    recordRate: unimplemented,
    getMeteringStatus: unimplemented,
    ingestEvents: answer('ingestEvents', (request: IngestEventsRequest) => {
      const response = script.ingest(request)
      script.ingested.push(...request.envelopes)
      return response
    }),
  }

  const server = new Server()
  server.addService(SignerServiceService, signer)
  server.addService(TokenServiceService, tokens)
  server.addService(MeteringServiceService, metering)
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  server.bindAsync(`127.0.0.1:${port}`, ServerCredentials.createInsecure(), (error, bound) =>
    error ? reject(error) : resolve(bound),
  )
  const bound = await promise

  function invalidate(kind: string, id: string): void {
    for (const watcher of watchers) watcher.write({ kind, id })
  }

  return {
    target: `127.0.0.1:${bound}`,
    port: bound,
    keys,
    sessions,
    revoked,
    users,
    calls,
    script,
    invalidate,
    watching: () => watchers.size > 0,
    stop: () => server.forceShutdown(),
  }
}

export type CoreDouble = Awaited<ReturnType<typeof startCoreDouble>>

function toServiceError(error: unknown): { code: number; details: string; metadata: Metadata } {
  const reason =
    typeof error === 'object' && error !== null && 'reason' in error ? error.reason : null
  const known = Object.entries(reasons).find(([name]) => name === reason)
  const metadata = new Metadata()
  if (known) metadata.set(reasonTrailer, known[0])
  return { code: known?.[1].grpc ?? status.INTERNAL, details: 'scripted', metadata }
}
