import { hostForUrl, listenError } from '../core/lib/http.ts'
import type { Log } from '../core/lib/log.ts'
import type { Metrics } from '../core/lib/metrics.ts'
import { type Now, systemNow } from '../core/lib/time.ts'
import type { GatewayConfig } from './config.ts'
import { type Core, connectCore } from './core/client.ts'
import { createCors } from './http/cors.ts'
import { createCounters } from './limits/counters.ts'
import { createLimits } from './limits/limiter.ts'
import { type App, createListener } from './http/listener.ts'
import { createObserve } from './http/metrics.ts'
import { builderHealthRoutes } from './builder-api/health.ts'
import { platformRoutes } from './platform-api/platform.ts'
import type { Webhook } from './platform-api/signer/webhook.ts'

export interface GatewayDeps {
  readonly log: Log
  readonly metrics: Metrics
  /** The sidecar's handler; without it /webhooks/remote-signer is unknown. */
  readonly webhook?: Webhook | undefined
  readonly now?: Now
}

export interface Gateway {
  readonly platformUrl: string
  readonly builderUrl: string
  /** Drains within 3 s; may be called again. */
  stop(): Promise<void>
  /** Whether what the gateway needs answers. */
  ready(): Promise<Readonly<Record<string, boolean>>>
}

const drainMs = 2500

/** Starts the public listeners. Throws one clear error when a port cannot be opened. */
export async function startGateway(config: GatewayConfig, deps: GatewayDeps): Promise<Gateway> {
  const { log, metrics, webhook, now = systemNow } = deps
  const { host, publicUrl, edge } = config
  const core = connectCore(config.core)
  const shared = { core, publicUrl, observe: createObserve(log, metrics) }
  const limits =
    edge.limits === null
      ? undefined
      : createLimits({
          settings: edge.limits,
          trustedProxyHops: edge.trustedProxyHops,
          counters: createCounters({ redisUrl: edge.redisUrl, log, now }),
        })
  const cors = createCors({ core, publicUrl, origins: edge.corsOrigins })
  const platform = createListener({ ...shared, cors, limits })
  const builder = createListener(shared)
  let stopping: Promise<void> | undefined
  const stop = (): Promise<void> =>
    (stopping ??= stopAll([platform, builder], core).finally(limits?.stop))
  try {
    const { tokenAlg, validateV2, loginProvider } = config
    await platformRoutes(platform, {
      ...shared,
      tokenAlg,
      webhook,
      ingestSecret: edge.ingestSecret,
      validateV2,
      loginProvider,
    })
    builderHealthRoutes(builder)
    const platformUrl = await open(platform, {
      host,
      port: config.platformPort,
      setting: 'PLATFORM_PORT',
    })
    const builderUrl = await open(builder, {
      host,
      port: config.builderPort,
      setting: 'BUILDER_PORT',
    })
    log.info({ platformUrl, builderUrl }, 'gateway listens')
    return { platformUrl, builderUrl, stop, ready: () => readiness(core) }
  } catch (error) {
    await stop()
    throw error
  }
}

async function open(
  app: App,
  at: { host: string; port: number; setting: string },
): Promise<string> {
  await app.ready()
  await app.listen({ host: at.host, port: at.port }).catch((error: NodeJS.ErrnoException) => {
    throw listenError(error, at)
  })
  const address = app.server.address()
  const port = typeof address === 'object' && address ? address.port : at.port
  return `http://${hostForUrl(at.host)}:${port}`
}

async function stopAll(apps: readonly App[], core: Core): Promise<void> {
  // A connection whose last request has just been answered would else be kept open for the next one.
  const sweep = setInterval(() => apps.forEach((app) => app.server.closeIdleConnections()), 20)
  const cut = setTimeout(() => apps.forEach((app) => app.server.closeAllConnections()), drainMs)
  await Promise.all(apps.map((app) => app.close()))
  clearInterval(sweep)
  clearTimeout(cut)
  core.close()
}

async function readiness(core: Core): Promise<Record<string, boolean>> {
  const { tokens } = core.callsFor({ correlationId: 'readiness' })
  return {
    core: await tokens.jwks({}).then(
      () => true,
      () => false,
    ),
  }
}
