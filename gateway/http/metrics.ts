import type { FastifyRequest } from 'fastify'
import { Histogram } from 'prom-client'
import type { Log } from '../../core/lib/log.ts'
import type { Metrics } from '../../core/lib/metrics.ts'
import type { DomainError } from '../../proto/errors.ts'
import { textMember } from './body.ts'
import type { App } from './app.ts'

/** One log line and one measurement for each request. Both name the route's template, never the path. */
export function createHttpMetrics(log: Log, metrics: Metrics) {
  const seconds = new Histogram({
    name: 'tollgate_gateway_http_duration_seconds',
    help: 'Time to answer an HTTP request',
    labelNames: ['route', 'method', 'status'],
    registers: [metrics],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5],
  })

  function answered(request: FastifyRequest, { status, ms }: { status: number; ms: number }): void {
    const { method, routeOptions, params, correlationId, reason } = request
    const route = routeOptions.url ?? 'unknown'
    seconds.observe({ route, method, status }, ms / 1000)
    const clientId = textMember(params, 'clientId')
    const appLabel =
      clientId !== undefined && /^app_[0-9a-f]{24}$/.test(clientId) ? { clientId } : {}
    const tenths = Math.round(ms * 10) / 10
    log.info({ route, method, status, reason, ms: tenths, ...appLabel, correlationId }, 'request')
  }

  function malformed(method: string, correlationId: string): void {
    seconds.observe({ route: 'malformed', method, status: 400 }, 0)
    log.info(
      { route: 'malformed', method, status: 400, reason: 'REQUEST_INVALID', correlationId },
      'request',
    )
  }

  function failed({ correlationId, routeOptions }: FastifyRequest, error: DomainError): void {
    const where = { route: routeOptions.url, correlationId }
    const cause = error.cause instanceof Error ? error.cause : error
    // A bug is logged with its stack; an outage, which fails every request, in a line.
    if (error.reason === 'INTERNAL') log.error({ ...where, err: cause }, 'request failed')
    else
      log.warn(
        { ...where, reason: error.reason, why: cause.message },
        'request could not be served',
      )
  }

  return { answered, malformed, failed }
}

export type HttpMetrics = ReturnType<typeof createHttpMetrics>

/** Measures and logs every reply of the listener. */
export function observeReplies(app: App, httpMetrics: HttpMetrics): void {
  app.addHook('onResponse', async (request, reply) =>
    httpMetrics.answered(request, { status: reply.raw.statusCode, ms: reply.elapsedTime }),
  )
}
