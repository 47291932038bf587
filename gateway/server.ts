import {
  type Parts,
  type Readiness,
  listenError,
  toPartState,
  formatServerUrl,
} from '../core/lib/http.ts'
import type { Log } from '../core/lib/log.ts'
import type { Metrics } from '../core/lib/metrics.ts'
import { cutConnections } from '../core/lib/network/server-tls.ts'
import type { CoreAddress } from '../core/lib/core-link/address.ts'
import { type Reloadable, currentValue } from '../core/lib/settings/reloadable.ts'
import { type Now, systemNow } from '../core/lib/time.ts'
import { issuerPath } from '../proto/headers.ts'
import { createAdmission } from './admission.ts'
import { builderRoutes } from './builder-api/builder.ts'
import { createEdgeCors } from './builder-api/edge/cors.ts'
import { isJwt } from './builder-api/edge/credentials.ts'
import { edgeRoutes } from './builder-api/edge/edge.ts'
import { type DeviceCookies, createDeviceCookies } from './auth/device-cookies.ts'
import { createSignedValues } from './auth/signed-values.ts'
import type { GatewayConfig } from './config.ts'
import { type Core, connectCore } from './core/client.ts'
import type { App } from './http/app.ts'
import type { RequestBounds } from './http/bounds.ts'
import type { OwnSettings } from '../core/lib/settings/redacted.ts'
import { createCors } from './http/cors.ts'
import { createListener } from './http/listener.ts'
import { createHttpMetrics } from './http/metrics.ts'
import { createForwardedCheck } from './limits/address.ts'
import { type Counters, createCounters } from './limits/counters.ts'
import { createLimits } from './limits/limiter.ts'
import { platformRoutes } from './platform-api/platform.ts'
import type { Webhook } from './platform-api/signer/webhook.ts'

export interface GatewayDeps {
  readonly log: Log
  readonly metrics: Metrics
  /** The sidecar's handler. Without it, /webhooks/remote-signer is not routed. */
  readonly webhook?: Webhook | undefined
  /** Secrets that `webhook` accepts, for test calls. */
  readonly webhookSecrets?: Reloadable<readonly string[]> | undefined
  readonly now?: Now
  /** The loopback port of this process's metrics, for the page that links to them. */
  readonly adminPort?: number | undefined
  /** Whether core runs the simulated payment processor. Its pages are then served. */
  readonly hasSimulatedProcessor?: boolean | undefined
  /** The settings of this process, for platform admins. */
  readonly settings?: OwnSettings | undefined
  /** Limits on slow and large requests; for tests. */
  readonly bounds?: RequestBounds
}

export interface Gateway {
  readonly platformUrl: string
  readonly builderUrl: string
  /** Undefined if the builder API has no edge. */
  readonly edgeUrl: string | undefined
  /** Drains within 3 s. Idempotent. */
  stop(): Promise<void>
  /** Whether core answers, and the state of its parts. */
  readonly ready: Readiness
  /** Returns core's time; null if core does not return it. Throws if core refuses this gateway. */
  readonly callCore: () => Promise<Date | null>
}

const drainMs = 2500

/** Starts the public listeners. Throws one clear error if a port cannot be opened. */
export async function startGateway(config: GatewayConfig, deps: GatewayDeps): Promise<Gateway> {
  const { core, counters, platform, builder, edge, httpMetrics, addRoutes } = createParts(
    config,
    deps,
  )
  let stopping: Promise<void> | undefined
  const stop = (): Promise<void> =>
    (stopping ??= stopAll(edge ? [platform, builder, edge] : [platform, builder], core).finally(
      () => {
        counters.stop()
        httpMetrics.stop()
      },
    ))
  try {
    await addRoutes()
    const { host, platformPort, builderPort, builderEdge } = config
    const platformUrl = await open(platform, { host, port: platformPort, setting: 'PLATFORM_PORT' })
    const builderUrl = await open(builder, { host, port: builderPort, setting: 'BUILDER_PORT' })
    const edgeAt = { host, port: builderEdge?.port ?? 0, setting: 'EDGE_PORT' }
    const edgeUrl = edge && (await open(edge, edgeAt))
    deps.log.info({ platformUrl, builderUrl, edgeUrl }, 'gateway listens')
    const checks = { ready: () => readiness(core), callCore: () => readTime(core) }
    return { platformUrl, builderUrl, edgeUrl, stop, ...checks }
  } catch (error) {
    await stop()
    throw error
  }
}

/**
 * Returns the OpenAPI document of the platform API with its internal routes, from which the
 * dashboard's client is generated. Opens no port.
 */
export async function readInternalDocument(
  config: GatewayConfig,
  deps: GatewayDeps,
): Promise<object> {
  const { addRoutes, platform, builder, core, counters, httpMetrics } = createParts(config, deps)
  try {
    await addRoutes()
    await platform.ready()
    return platform.internalSwagger()
  } finally {
    await stopAll([platform, builder], core)
    counters.stop()
    httpMetrics.stop()
  }
}

/** Creates the gateway's parts without opening any port. */
function createParts(config: GatewayConfig, deps: GatewayDeps) {
  const { log, metrics, now, bounds } = deps
  const { publicUrl, edge, builderEdge, certificate, tokenAlg, validateV2, loginProvider } = config
  const { ingestSecret, trustedProxyHops, connections } = edge
  const core = connectCore(config.core, publicUrl + issuerPath)
  const shared = {
    core,
    publicUrl,
    httpMetrics: createHttpMetrics(log, metrics),
    bounds,
    connections,
    certificate,
    log,
    checkForwarded: createForwardedCheck({ trustedProxyHops, log, metrics }),
  }
  const signedFor = (purpose: string) =>
    createSignedValues({ secrets: sharedSecrets(config.core), purpose, now })
  const devices = createDeviceCookies({ values: signedFor('device cookie'), publicUrl })
  const counters = createCounters({ redisUrl: edge.redisUrl, log, now: now ?? systemNow })
  const { limits, builderEdgeLimits } = createEdgeLimits(config, { counters, devices })
  const cors = createCors({ core, publicUrl, origins: edge.corsOrigins })
  const admission = createAdmission({ core, publicUrl, cors, limits })
  const platform = createListener(shared, admission)
  const builder = createListener(shared, admission)
  const edgeOrigins = builderEdge?.corsOrigins ?? []
  const edgeCors = createEdgeCors(edgeOrigins)
  const internet =
    builderEdge &&
    createListener(
      shared,
      createAdmission({
        core,
        publicUrl,
        cors: edgeCors,
        limits: builderEdgeLimits,
        takesUser: isJwt,
      }),
    )

  async function addRoutes(): Promise<void> {
    const logins = { loginProvider, devices, counters, loginStates: signedFor('login state') }
    const access = { trustedProxyHops, ingestSecret, limits }
    const { webhook, webhookSecrets, adminPort, hasSimulatedProcessor } = deps
    const ownSettings = deps.settings
    const pages = { adminPort, hasSimulatedProcessor }
    const settings = { tokenAlg, validateV2, ...pages, ...access, ...logins }
    const edgeUrl = builderEdge?.url
    const signer = { webhook, webhookSecrets }
    await platformRoutes(platform, { ...shared, ...settings, ...signer, edgeUrl, ownSettings })
    await builderRoutes(builder, shared)
    if (internet && edgeUrl !== undefined)
      edgeRoutes(internet, { ...shared, tokenAlg, edgeUrl, corsOrigins: edgeOrigins })
  }

  return { ...shared, counters, platform, builder, edge: internet, addRoutes }
}

/** All gateways of the deployment share these tokens, so each can verify what another signed. */
const sharedSecrets = ({ token, tokens }: CoreAddress): Reloadable<readonly string[]> =>
  tokens ?? (() => [currentValue(token)])

function createEdgeLimits(
  { edge, builderEdge }: GatewayConfig,
  { counters, devices }: { counters: Counters; devices: DeviceCookies },
) {
  const { limits: settings, trustedProxyHops } = edge
  if (settings === null) return { limits: undefined, builderEdgeLimits: undefined }
  const shared = { trustedProxyHops, counters, devices }
  const edgeSettings = () => {
    const all = currentValue(settings)
    return { ...all, perAddress: currentValue(builderEdge?.perAddress) ?? all.perAddress }
  }
  return {
    limits: createLimits({ ...shared, settings }),
    builderEdgeLimits: createLimits({ ...shared, settings: edgeSettings }),
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
  return formatServerUrl(app.server, at.host, port)
}

async function stopAll(apps: readonly App[], core: Core): Promise<void> {
  // A connection becomes idle after its last answer; without the sweep it would stay open until
  // drainMs.
  const sweep = setInterval(() => apps.forEach((app) => app.server.closeIdleConnections()), 20)
  const cut = setTimeout(() => apps.forEach((app) => cutConnections(app.server)), drainMs)
  await Promise.all(apps.map((app) => app.close()))
  clearInterval(sweep)
  clearTimeout(cut)
  core.close()
}

async function readTime(core: Core): Promise<Date | null> {
  const { now } = await core.callsFor({ correlationId: 'clock' }).readiness.getReadiness({})
  return now === '' ? null : new Date(now)
}

/**
 * Returns the state of `core` and of its parts by name. A core that refuses this gateway is
 * unavailable.
 */
async function readiness(core: Core): Promise<Parts> {
  const { readiness } = core.callsFor({ correlationId: 'readiness' })
  const parts = await readiness.getReadiness({}).then(
    ({ parts }) => parts,
    () => null,
  )
  if (parts === null) return { core: 'unavailable' }
  const states = parts.map(({ name, state }) => [name, toPartState(state)] as const)
  return { ...Object.fromEntries(states), core: 'ok' }
}
