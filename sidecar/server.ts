import { type IncomingMessage, type Server, type ServerResponse, createServer } from 'node:http'
import { listen } from '../core/lib/http.ts'
import type { Log } from '../core/lib/log.ts'
import type { Metrics } from '../core/lib/metrics.ts'
import { type Now, systemNow } from '../core/lib/time.ts'
import { createAccessBook } from './accounts/access.ts'
import { createAuthorizer } from './authorize/decision.ts'
import { type Cache, createMemoryCache, createRedisCache } from './identity/cache.ts'
import type { SidecarConfig } from './config.ts'
import { createCoreClient } from './core-client.ts'
import { createEventsHandler } from './events/handler.ts'
import { createForwarding } from './events/forwarding.ts'
import { createIdentities } from './identity/identities.ts'
import { createInvalidations } from './invalidation/invalidations.ts'
import { createKeyDirectory } from './identity/key-directory.ts'
import { createMarks } from './identity/versions.ts'
import { createMeters } from './metrics.ts'
import { maxPriceMembers } from './authorize/price-ceiling.ts'
import { createElapsed } from './accounts/session-billing.ts'
import { createRevokedTokens } from './identity/revoked-tokens.ts'
import { createRouter } from './http/router.ts'
import { createCallerCheck } from './http/caller.ts'
import { openSpool } from './spool/spool.ts'
import { createUsagePushes } from './events/usage-push.ts'
import { type KeyShape, serviceKeys } from './identity/verifiers/api-key.ts'
import { selectVerifier } from './identity/verifiers/select.ts'
import { createWebhook } from './authorize/webhook.ts'

type Handler = (request: IncomingMessage, response: ServerResponse) => void

export interface SidecarDeps {
  readonly log: Log
  readonly metrics: Metrics
  readonly now?: Now
  /** Which credentials are keys; ours when absent. */
  readonly keyShape?: KeyShape
}

export interface Sidecar {
  readonly url: string
  readonly port: number
  /**
   * The decision call, for whoever mounts it elsewhere: authenticates its caller, reads the
   * body, answers.
   */
  readonly webhook: Handler
  /** Which of its dependencies answer. */
  ready(): Promise<Record<string, boolean>>
  /** Drains within three seconds; may be called twice. */
  stop(): Promise<void>
}

const entries = 100_000
const drainMs = 2_500
const readyMs = 250

/**
 * Starts the sidecar. Rejects with one clear line when its port is taken or its verifier cannot
 * be loaded.
 */
export async function startSidecar(config: SidecarConfig, deps: SidecarDeps): Promise<Sidecar> {
  const parts = await createParts(config, deps)
  const server = createHttpServer(config, parts)
  const { host, port } = config.listen
  const listening = await listen(server, { host, port, setting: 'SIDECAR_PORT' }).catch(
    async (error: unknown) => {
      await parts.stop()
      throw error
    },
  )
  let stopping: Promise<void> | null = null
  const stop = (): Promise<void> => (stopping ??= listening.stop(drainMs).then(parts.stop))
  return {
    url: listening.url,
    port: listening.port,
    webhook: parts.webhook,
    ready: parts.ready,
    stop,
  }
}

async function createParts(
  config: SidecarConfig,
  { log, metrics, now = systemNow, keyShape }: SidecarDeps,
) {
  const { identity, redisUrl, signingTtlSeconds } = config
  const core = createCoreClient(config.core)
  const cache: Cache =
    redisUrl === undefined
      ? createMemoryCache({ max: entries })
      : createRedisCache({ url: redisUrl, log })
  const meters = createMeters(metrics)
  const marks = createMarks({ max: entries })
  const access = createAccessBook({
    core,
    marks,
    ttlSeconds: config.access.ttlSeconds,
    minimum: config.access.minimumUsdNanos,
    lagSeconds: config.access.lagSeconds,
    max: entries,
    now,
  })
  const lookup = createKeyDirectory({
    core,
    cache,
    access,
    marks,
    meters,
    issuer: identity.ownIssuer,
    ttlSeconds: identity.ttlSeconds,
    now,
  })
  const revokedTokens = createRevokedTokens({
    core,
    ttlSeconds: identity.ttlSeconds,
    max: entries,
    now,
  })
  const verify = await selectVerifier({
    config: identity,
    core,
    lookup,
    shape: keyShape ?? serviceKeys,
    revokedTokens,
    now,
  })
  const spool =
    config.spool &&
    (await openSpool({
      ...config.spool,
      metrics,
      log,
      now,
      deliver: core.ingestEvents,
      onDelivered: meters.forwarded,
      onFailed: () => meters.failed('core'),
    }))
  const identities = createIdentities({ verify, access, marks, max: entries, log, now })
  const elapsed = createElapsed({ max: entries })
  const invalidations = createInvalidations({
    core,
    redisUrl,
    cache,
    marks,
    revokedTokens,
    tombstoneSeconds: identity.ttlSeconds,
    log,
  })
  meters.watchMoney(access.money)
  meters.watchSizes(() => ({
    ...identities.sizes(),
    access: access.size(),
    sessions: elapsed.size(),
  }))
  const maxPrice = maxPriceMembers(config.maxPrice)
  const authorize = createAuthorizer({
    identities,
    access,
    elapsed,
    signingTtlSeconds,
    maxPrice,
    meters,
    log,
    now,
  })
  const isKnownCaller = createCallerCheck(config.webhookSecrets)
  const webhook = createWebhook({
    authorize,
    isKnownCaller,
    maxInFlight: config.maxInFlight,
    meters,
    log,
  })
  const events = createEventsHandler({
    keeper: spool ?? createForwarding({ core, meters }),
    complete: createUsagePushes({ now }),
    isKnownCaller,
    log,
  })

  async function ready(): Promise<Record<string, boolean>> {
    const [coreAnswers, cacheAnswers] = await Promise.all([core.ready(readyMs), cache.ready()])
    return {
      core: coreAnswers,
      ...(redisUrl !== undefined && { redis: cacheAnswers }),
      ...(spool && { spool: !spool.isFull() }),
    }
  }

  async function stop(): Promise<void> {
    invalidations.stop()
    await spool?.stop()
    core.stop()
    await cache.stop()
  }

  return { webhook, events, ready, stop }
}

function createHttpServer(
  config: SidecarConfig,
  parts: Awaited<ReturnType<typeof createParts>>,
): Server {
  // The signer keeps idle connections for 90 s; a shorter life here would let it write into a dying
  // one.
  const server = createServer(
    { keepAliveTimeout: 120_000, headersTimeout: 125_000, requestTimeout: 130_000 },
    createRouter(parts),
  )
  server.maxConnections = config.listen.maxConnections
  server.on('clientError', (_error, socket) => {
    if (socket.writable)
      socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
    else socket.destroy()
  })
  return server
}
