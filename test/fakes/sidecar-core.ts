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
  type Decision as DecisionRecord,
  type DecisionServiceServer,
  DecisionServiceService,
} from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import {
  Access,
  type SignerServiceServer,
  SignerServiceService,
  type VerifyApiKeyResponse,
  VerifyForeignTokenResponse,
  type WatchInvalidationsRequest,
  type WatchInvalidationsResponse,
} from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import {
  type TokenServiceServer,
  TokenServiceService,
} from '../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import { EscrowServiceService, createEscrowState, escrowService } from './sidecar-escrow.ts'

export interface ScriptedKey {
  clientId: string
  externalUserId: string
  keyId: string
}

/** Returns a refusal for a scripted answer to throw. */
export const refuse = (reason: Reason): { reason: Reason } => ({ reason })

const attosPerMicro = 1_000_000_000_000n

/** The scripted answers and the call counters. */
function createState() {
  return {
    keys: new Map<string, ScriptedKey>(),
    sessions: new Map<string, ScriptedKey & { expiresAt: bigint }>(),
    /** Answers for tokens of trusted issuers; all other tokens have the fault `token_issuer`. */
    foreign: new Map<string, Partial<VerifyForeignTokenResponse>>(),
    revoked: new Set<string>(),
    users: new Map<string, Partial<Access> & { micros: bigint }>(),
    escrow: createEscrowState(),
    invalidate: (_kind: string, _id: string, _endsBefore?: number): void => undefined,
    calls: {
      /** Number of keys; `verifyApiKeys` counts the RPCs. */
      verifyApiKey: 0,
      verifyApiKeys: 0,
      verifySignerSession: 0,
      verifyForeignToken: 0,
      checkToken: 0,
      getAccess: 0,
      getJwks: 0,
      ingestEvents: 0,
      lend: 0,
      reserve: 0,
      report: 0,
      recordDecisions: 0,
      tokens: new Set<string>(),
    },
    script: {
      usdPerEth: 3000n as bigint | null,
      /** Delay of every answer except those to reports. */
      delayMs: 0,
      failing: false,
      /** Returns the owner of a key that is not in `keys`. */
      owner: (_apiKey: string): ScriptedKey | undefined => undefined,
      /** If true, requests get no answer, as from a stopped process. */
      frozen: false,
      jwks: { keys: [] } as JSONWebKeySet,
      ingested: [] as Buffer[],
      /** Decision records in order of arrival. */
      decisions: [] as DecisionRecord[],
      ingest: (request: IngestEventsRequest): IngestEventsResponse => ({
        tickets: request.envelopes.length,
        duplicates: 0,
        ignored: 0,
        quarantined: 0,
      }),
    },
  }
}

export type State = ReturnType<typeof createState>
type Watcher = ServerWritableStream<WatchInvalidationsRequest, WatchInvalidationsResponse>

/**
 * Returns a factory of handlers: each counts its call, waits as scripted, and answers with the
 * result of `work`.
 */
function createAnswers({ calls, script }: State) {
  return <Request, Response>(name: keyof typeof calls, work: (request: Request) => Response) =>
    (call: ServerUnaryCall<Request, Response>, done: sendUnaryData<Response>): void => {
      const counted = calls[name]
      if (typeof counted === 'number') Object.assign(calls, { [name]: counted + 1 })
      calls.tokens.add(String(call.metadata.get('x-tollgate-service-token')[0]))
      if (script.frozen) return
      setTimeout(
        () => {
          try {
            if (script.failing) throw refuse('INTERNAL')
            done(null, work(call.request))
          } catch (error) {
            done(toServiceError(error))
          }
        },
        name === 'report' ? 0 : script.delayMs,
      )
    }
}

export type Answers = ReturnType<typeof createAnswers>

function accessOf({ users, script }: State, name: string): Access {
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

function signerService(state: State, answer: Answers, watchers: Set<Watcher>): SignerServiceServer {
  const { keys, sessions, foreign, revoked, script } = state

  function verify(apiKey: string): VerifyApiKeyResponse {
    const key = keys.get(apiKey) ?? script.owner(apiKey)
    if (!key) return { identity: undefined, access: undefined }
    const name = `${key.clientId}:${key.externalUserId}`
    return {
      identity: { grants: [], ...key, userId: `user-of-${name}` },
      access: accessOf(state, name),
    }
  }

  return {
    verifyApiKey: createUnimplemented(answer),
    verifyApiKeys: answer('verifyApiKeys', ({ apiKeys }) => {
      state.calls.verifyApiKey += apiKeys.length
      return { answers: apiKeys.map(verify) }
    }),
    verifySignerSession: answer('verifySignerSession', ({ token }) => {
      const session = sessions.get(token)
      if (!session) throw refuse('TOKEN_INVALID')
      const name = `${session.clientId}:${session.externalUserId}`
      return {
        identity: { grants: [], ...session, userId: `user-of-${name}` },
        access: accessOf(state, name),
        expiresAt: session.expiresAt,
        scope: 'sign:job',
      }
    }),
    verifyForeignToken: answer('verifyForeignToken', ({ token }) => {
      const known = foreign.get(token)
      if (!known?.identity)
        return VerifyForeignTokenResponse.fromPartial(known ?? { fault: 'token_issuer' })
      const name = `${known.identity.clientId}:${known.identity.externalUserId}`
      return VerifyForeignTokenResponse.fromPartial({ ...known, access: accessOf(state, name) })
    }),
    getAccess: answer('getAccess', ({ clientId, externalUserId }) => ({
      access: accessOf(state, `${clientId}:${externalUserId}`),
    })),
    checkToken: answer('checkToken', ({ jti, loginId, grants }) => ({
      revoked: [jti, loginId, ...grants].some((id) => revoked.has(id)),
    })),
    watchInvalidations: (call) => {
      call.sendMetadata(new Metadata())
      watchers.add(call)
      call.on('cancelled', () => watchers.delete(call))
    },
  }
}

const createUnimplemented = (answer: Answers) =>
  answer<unknown, never>('tokens', () => {
    throw refuse('INTERNAL')
  })

function tokenService({ script }: State, answer: Answers): TokenServiceServer {
  const unimplemented = createUnimplemented(answer)
  return {
    issueMachineToken: unimplemented,
    mintUserToken: unimplemented,
    mintUserTokens: unimplemented,
    mintTestToken: unimplemented,
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
}

function meteringService({ script }: State, answer: Answers): MeteringServiceServer {
  const unimplemented = createUnimplemented(answer)
  return {
    recordRate: unimplemented,
    getMeteringStatus: unimplemented,
    ingestEvents: answer('ingestEvents', (request: IngestEventsRequest) => {
      const response = script.ingest(request)
      script.ingested.push(...request.envelopes)
      return response
    }),
  }
}

function decisionService({ script }: State, answer: Answers): DecisionServiceServer {
  const unimplemented = createUnimplemented(answer)
  return {
    recordDecisions: answer('recordDecisions', ({ decisions }) => {
      script.decisions.push(...decisions)
      return {}
    }),
    getDecision: unimplemented,
    getAppDecision: unimplemented,
    listDecisions: unimplemented,
    listAppDecisions: unimplemented,
  }
}

/** Starts core as the sidecar sees it: a gRPC server with scripted answers and call counters. */
export async function startCoreDouble(port = 0) {
  const state = createState()
  const answer = createAnswers(state)
  const watchers = new Set<Watcher>()
  const server = new Server()
  server.addService(SignerServiceService, signerService(state, answer, watchers))
  server.addService(TokenServiceService, tokenService(state, answer))
  server.addService(MeteringServiceService, meteringService(state, answer))
  server.addService(DecisionServiceService, decisionService(state, answer))
  const access = (name: string): Access => accessOf(state, name)
  server.addService(EscrowServiceService, escrowService(state, answer, access))
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  server.bindAsync(`127.0.0.1:${port}`, ServerCredentials.createInsecure(), (error, bound) =>
    error ? reject(error) : resolve(bound),
  )
  const bound = await promise

  state.invalidate = (kind, id, endsBefore = 0) => {
    for (const watcher of watchers) watcher.write({ kind, id, endsBefore: BigInt(endsBefore) })
  }

  return {
    ...state,
    target: `127.0.0.1:${bound}`,
    port: bound,
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
