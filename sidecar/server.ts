import { randomUUID } from 'node:crypto'
import { type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { hostname } from 'node:os'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { boundConnections } from '../core/lib/network/connections.ts'
import { createWebServer } from '../core/lib/network/server-tls.ts'
import { type Listening, type Parts, type Readiness, listen, partStates } from '../core/lib/http.ts'
import type { Log } from '../core/lib/log.ts'
import { startLoop } from '../core/lib/loop.ts'
import type { Metrics } from '../core/lib/metrics.ts'
import { currentValue } from '../core/lib/settings/reloadable.ts'
import { settlesWithin } from '../core/lib/process.ts'
import { type Now, toClock, systemNow } from '../core/lib/time.ts'
import { type Escrow, createEscrow } from './wallets/escrow.ts'
import { createAuthorizer } from './authorize/decision.ts'
import { createWebhook } from './authorize/webhook.ts'
import type { SidecarConfig } from './config.ts'
import { type CoreClient, createCoreClient } from './core/client.ts'
import { createExplanations } from './explain/explanations.ts'
import { createRecordMaker } from './explain/decision-record.ts'
import { createRecordQueue } from './explain/record-queue.ts'
import { createForwarding } from './events/forwarding.ts'
import { createEventsHandler } from './events/handler.ts'
import { createUsagePushes } from './events/usage-push.ts'
import {
  type CallerOf,
  createCallers,
  createSecretThrottle,
  readAddress,
} from './callers/callers.ts'
import { type Routes, createRouter } from './http/router.ts'
import { type Cache, createRedisCache } from './cache/redis.ts'
import { createCacheEntries } from './cache/signed-entries.ts'
import { type Versions, createVersions } from './cache/cached-state.ts'
import { type Identities, createIdentities } from './identity/identities.ts'
import { createForeignTokens } from './identity/foreign-tokens.ts'
import { createKeyDirectory } from './identity/key-directory.ts'
import { type RevokedTokens, createRevokedTokens } from './identity/revoked-tokens.ts'
import { type KeyShape, serviceKeys } from './identity/verifiers/api-key.ts'
import { selectVerifier } from './identity/verifiers/select.ts'
import { createInvalidations } from './cache/invalidations.ts'
import { decisionCodes } from './decision/refusals.ts'
import { type EscrowFigures, type SidecarMetrics, createSidecarMetrics } from './metrics.ts'
import { type Signers, createSigners } from './callers/signers.ts'
import { openSpool } from './spool/spool.ts'

type Handler = (request: IncomingMessage, response: ServerResponse) => void
type Answers = Readonly<Record<string, boolean>>

export interface SidecarDeps {
  readonly log: Log
  readonly metrics: Metrics
  readonly now?: Now
  /** Milliseconds of a clock that never jumps, by which leases end. */
  readonly mono?: () => number
  /** Which credentials are keys; our own format when absent. */
  readonly keyShape?: KeyShape
  /** Maximum duration of requests; for tests. */
  readonly bounds?: RequestBounds
}

/** Time until the last header and the last byte of a request must have arrived. */
export interface RequestBounds {
  readonly headersMs: number
  readonly requestMs: number
}

export interface Sidecar {
  readonly url: string
  readonly port: number
  /**
   * The decision call as a handler that can be mounted elsewhere, too. Authenticates its caller,
   * reads the request and answers.
   */
  readonly webhook: Handler
  readonly ready: Readiness
  /** Returns core's time; null if core does not return it. Throws if core refuses this sidecar. */
  readonly callCore: () => Promise<Date | null>
  /** Drains within three seconds; may be called twice. */
  stop(): Promise<void>
}

/** A part of the sidecar: its API for later parts, its readiness, and its stop. */
interface Part<Api> {
  readonly api: Api
  readonly ready?: () => Promise<Answers>
  readonly stop?: () => Promise<void> | void
}

/** Shared by all parts. */
interface Context {
  readonly config: SidecarConfig
  readonly log: Log
  readonly now: Now
  readonly mono: () => number
  readonly registry: Metrics
  readonly metrics: SidecarMetrics
  readonly keyShape: KeyShape
  readonly bounds: RequestBounds
}

const drainMs = 1_500
const readyMs = 250

/**
 * Starts the parts of the sidecar in order. If its port is taken or a part cannot start, stops the
 * earlier parts and rejects with one clear line.
 */
export async function startSidecar(config: SidecarConfig, deps: SidecarDeps): Promise<Sidecar> {
  const { log, now = systemNow, metrics: registry, keyShape = serviceKeys } = deps
  const { bounds = usualBounds } = deps
  const mono = deps.mono ?? performance.now.bind(performance)
  const metrics = createSidecarMetrics(registry, decisionCodes)
  const context = { config, log, now, mono, registry, metrics, keyShape, bounds }
  const parts = createPartList()
  const { listening, webhook, core } = await startParts(context, parts).catch(
    async (error: unknown) => {
      await parts.stop()
      throw error
    },
  )
  let stopping: Promise<void> | null = null
  return {
    url: listening.url,
    port: listening.port,
    webhook,
    ready: parts.ready,
    callCore: core.readTime,
    stop: () => (stopping ??= parts.stop()),
  }
}

async function startParts(context: Context, parts: PartList) {
  const { core, cache } = parts.add(createConnections(context))
  const { versions, escrow } = parts.add(startEscrow(context, core))
  const state = { core, cache, versions, escrow }
  const { identities, ...ends } = parts.add(await createIdentityPart(context, state))
  const { callersOf, signers } = parts.add(createCallerPart(context, core))
  const events = parts.add(await createEvents(context, { core, callerOf: callersOf('events') }))
  parts.add(createInvalidationLinks(context, { ...state, ...ends, signers }))
  const webhook = parts.add(
    createAuthorize(context, { identities, escrow, core, callerOf: callersOf('decisions') }),
  )
  const routes = { webhook, events, ready: parts.ready }
  const listening = parts.add(await startListener(context, routes))
  return { listening, webhook, core }
}

/** Parts in the order of their start. They stop one after the other, in reverse order. */
function createPartList() {
  const parts: Part<unknown>[] = []

  function add<Api>(part: Part<Api>): Api {
    parts.push(part)
    return part.api
  }

  // Require core only until its first answer: leases outlive an outage, but at first there are
  // no leases.
  let isBegun = false
  async function ready(): Promise<Parts> {
    const each = await Promise.all(parts.map((part) => part.ready?.()))
    const answers: Answers = Object.assign({}, ...each)
    isBegun ||= answers['core'] === true
    return partStates(answers, isBegun ? ['escrow'] : ['escrow', 'core'])
  }

  async function stop(): Promise<void> {
    for (const part of parts.toReversed()) await part.stop?.()
  }

  return { add, ready, stop }
}

type PartList = ReturnType<typeof createPartList>

/** Connections to core and, with Redis, to the cache that sidecars share. */
function createConnections({
  config,
  log,
}: Context): Part<{ readonly core: CoreClient; readonly cache: Cache | null }> {
  const { redisUrl } = config
  const core = createCoreClient(config.core, log)
  const cache = redisUrl === undefined ? null : createRedisCache({ url: redisUrl, log })

  async function ready(): Promise<Answers> {
    const [coreAnswers, redis] = await Promise.all([core.ready(readyMs), cache?.ready()])
    return { core: coreAnswers, ...(redis !== undefined && { redis }) }
  }

  async function stop(): Promise<void> {
    core.stop()
    await cache?.stop()
  }

  return { api: { core, cache }, ready, stop }
}

const flushMs = 200
const heartbeatMs = 500
const idleMs = 1_000
const finalReportMs = 1_000

/** The accounts of users with their leases, and the versions of cached state. */
function startEscrow(
  { config, log, now, mono, metrics, registry }: Context,
  core: CoreClient,
): Part<{ readonly versions: Versions; readonly escrow: Escrow }> {
  const versions = createVersions({ max: config.cacheEntries })
  const escrow = createEscrow({
    core: core.escrow,
    process: processOf(config),
    versions,
    settings: { ...config.access, maxEntries: config.cacheEntries },
    clocks: { mono, wall: toClock(now), sleep },
    log,
  })
  metrics.watchEscrow(() => figuresOf(escrow))
  const loops = startEscrowLoops(escrow, { log, registry })

  async function stop(): Promise<void> {
    await settlesWithin(Promise.all(loops.map((loop) => loop.stop())), finalReportMs / 2)
    const settles = await settlesWithin(escrow.stop(), finalReportMs)
    const unreported = escrow.reports.unreported()
    if (!settles || unreported > 0) log.warn({ unreported }, 'core has not received all calls')
  }

  const ready = async (): Promise<Answers> => ({ escrow: !escrow.reports.isRefused() })
  return { api: { versions, escrow }, ready, stop }
}

/** Identifies this process at core, with a new instance at each start. */
function processOf({ sidecarId, listen: { port } }: SidecarConfig) {
  const instance = randomUUID()
  // A port chosen by the system does not identify the process.
  const name = `${hostname()}:${port === 0 ? instance : port}`
  return { id: sidecarId ?? name, instance }
}

function startEscrowLoops(
  { reports, leases }: Escrow,
  { log, registry: metrics }: Pick<Context, 'log' | 'registry'>,
) {
  const loop = (name: string, pauseMs: number, round: () => Promise<unknown>) =>
    startLoop({ name, log, metrics, pauseMs, round })
  return [
    loop('sidecar heartbeat', heartbeatMs, reports.heartbeat),
    loop('sidecar reports', flushMs, reports.flush),
    loop('lease renewals', flushMs, leases.renewDue),
    loop('idle leases', idleMs, leases.returnIdle),
  ]
}

const figuresOf = ({ core, leases, offline, reports }: Escrow): EscrowFigures => ({
  ...leases.totals(),
  offline: offline.spentInTotal(),
  unreported: reports.unsent(),
  leaseSeconds: leases.longestSeconds(),
  isAway: core.isAway(),
})

interface State {
  readonly core: CoreClient
  readonly cache: Cache | null
  readonly versions: Versions
  readonly escrow: Escrow
}

/** Stores for ended credentials. */
interface Ends {
  readonly identityVersions: Versions
  readonly revokedTokens: RevokedTokens
}

/** The verifier of the configured mode, and the cache of identities. */
async function createIdentityPart(
  { config, log, now, metrics, keyShape }: Context,
  { core, cache, versions, escrow }: State,
): Promise<Part<{ readonly identities: Identities } & Ends>> {
  const { identity, cacheEntries: max } = config
  const { ttlSeconds, ownIssuer: issuer } = identity
  const bounds = { ttlSeconds, now }
  const { accounts } = escrow
  const shared = { accounts, versions, mono: escrow.clocks.mono }
  const entries = createCacheEntries(
    () => currentValue(config.cacheKey) ?? currentValue(config.core.token),
  )
  const lookup = createKeyDirectory({ core, cache, entries, ...shared, metrics, issuer, ...bounds })
  const foreign = createForeignTokens({ core, ...shared, ...bounds })
  const revokedTokens = createRevokedTokens({ core, max, ...bounds })
  const selection = await selectVerifier({
    config: identity,
    core,
    lookup,
    foreign,
    shape: keyShape,
    revokedTokens,
    guessesMax: config.guessesMax,
    now,
  })
  const identityVersions = createVersions({ max })
  const identities = createIdentities({
    ...selection,
    accounts,
    versions: identityVersions,
    max,
    log,
    now,
  })
  return { api: { identities, identityVersions, revokedTokens } }
}

/** Authenticates callers. The routes share one count of wrong secrets. */
function createCallerPart(
  { config, metrics, registry, mono, now, log }: Context,
  core: CoreClient,
): Part<{ readonly callersOf: ReturnType<typeof createCallers>; readonly signers: Signers }> {
  const { webhookSecrets: decisions, eventsSecrets, guessesMax: max } = config
  const guesses = createSecretThrottle({ max, signers: config.signerAddresses, mono })
  const events = (): readonly string[] =>
    currentValue(eventsSecrets).length > 0 ? currentValue(eventsSecrets) : currentValue(decisions)
  const secrets = { decisions, events }
  const signers = createSigners({ core, now, log, metrics: registry })
  const countRefused = metrics.countRefusedCaller
  const callersOf = createCallers({ secrets, signers, guesses, countRefused })
  return { api: { callersOf, signers }, stop: signers.stop }
}

/** Direct mode: events pushed by the signer, stored in the spool if configured. */
async function createEvents(
  { config, log, now, registry, metrics }: Context,
  { core, callerOf }: { readonly core: CoreClient; readonly callerOf: CallerOf },
): Promise<Part<Handler>> {
  const spool =
    config.spool &&
    (await openSpool({
      ...config.spool,
      metrics: registry,
      log,
      now,
      deliver: core.ingestEvents,
      onDelivered: metrics.countEvents,
      onFailed: () => metrics.countFailure('core'),
    }))
  const api = createEventsHandler({
    sink: spool ?? createForwarding({ core, metrics }),
    complete: createUsagePushes({ now }),
    callerOf,
    log,
  })
  return spool
    ? { api, ready: async () => ({ spool: !spool.isFull() }), stop: spool.stop }
    : { api }
}

/** The links over which core invalidates cached state. */
function createInvalidationLinks(
  { config, log }: Context,
  state: State & Ends & { readonly signers: Signers },
): Part<null> {
  const { core, cache, versions, identityVersions, escrow, revokedTokens } = state
  const invalidations = createInvalidations({
    core,
    redisUrl: config.redisUrl,
    cache,
    versions,
    identityVersions,
    revokedTokens,
    recall: escrow.leases.recall,
    recallApp: escrow.leases.recallApp,
    refreshSigners: state.signers.refreshSoon,
    tombstoneSeconds: config.identity.ttlSeconds,
    log,
  })
  return { api: null, stop: invalidations.stop }
}

/** The decision call. */
function createAuthorize(
  context: Context,
  {
    identities,
    escrow,
    core,
    callerOf,
  }: Pick<State, 'core' | 'escrow'> & {
    readonly identities: Identities
    readonly callerOf: CallerOf
  },
): Part<Handler> {
  const { config, log, now, metrics } = context
  const { signingTtlSeconds, maxPrice, maxInFlight } = config
  const { accounts, leases, memory } = escrow
  const sizes = () => ({
    accounts: accounts.size(),
    leases: leases.size(),
    sessions: memory.size(),
  })
  metrics.watchSizes(() => ({ ...identities.sizes(), ...sizes() }))
  const authorize = createAuthorizer({
    identities,
    escrow,
    signingTtlSeconds,
    maxPrice,
    metrics,
    log,
    now,
  })
  const { explanations, queue } = startExplanations(context, { core, escrow })
  const webhook = { authorize, explanations, callerOf, maxInFlight, metrics, log }
  return { api: createWebhook(webhook), stop: queue.stop }
}

/** Records of decisions, to explain them later. */
function startExplanations(
  { config, log, now, metrics, registry, keyShape }: Context,
  { core, escrow }: Pick<State, 'core' | 'escrow'>,
) {
  const queue = createRecordQueue({ send: core.recordDecisions, metrics, registry, log })
  const recordOf = createRecordMaker(escrow, keyShape)
  const shared = { limits: config.decisions, recordOf, queue, metrics, log }
  return { queue, explanations: createExplanations({ ...shared, clock: toClock(now) }) }
}

/** The listener; its stop lets running requests finish. */
async function startListener(context: Context, routes: Routes): Promise<Part<Listening>> {
  const { config } = context
  const { host, port, maxConnections, maxConnectionsPerAddress } = config.listen
  const server = createHttpServer(routes, context)
  boundConnections(server, {
    max: maxConnections,
    maxPerAddress: maxConnectionsPerAddress,
    isExempt: (socket) => config.signerAddresses.includes(readAddress(socket)),
  })
  const listening = await listen(server, { host, port, setting: 'SIDECAR_PORT' })
  return { api: listening, stop: () => listening.stop(drainMs) }
}

const usualBounds: RequestBounds = { headersMs: 10_000, requestMs: 30_000 }

function createHttpServer(routes: Routes, { config, log, bounds }: Context): Server {
  const { headersMs, requestMs } = bounds
  // The signer keeps idle connections for 90 s. With a shorter time-out here it could write into a
  // connection that is being closed.
  const options = {
    keepAliveTimeout: 120_000,
    headersTimeout: headersMs,
    requestTimeout: requestMs,
    connectionsCheckingInterval: Math.min(1_000, headersMs / 2),
  }
  const { certificate } = config.listen
  const server = createWebServer({ server: options, certificate, log }, createRouter(routes))
  server.on('clientError', ({ code }: NodeJS.ErrnoException, socket) => {
    const status = code === 'ERR_HTTP_REQUEST_TIMEOUT' ? '408 Request Timeout' : '400 Bad Request'
    if (socket.writable)
      socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`)
    else socket.destroy()
  })
  return server
}
