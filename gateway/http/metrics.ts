import type { FastifyRequest } from 'fastify'
import { Histogram } from 'prom-client'
import type { Log } from '../../core/lib/log.ts'
import type { Metrics } from '../../core/lib/metrics.ts'
import type { DomainError, Reason } from '../../proto/errors.ts'
import { textMember } from './body.ts'
import type { App } from './app.ts'
import { createLogSamples } from './log-samples.ts'

/**
 * Records a measurement and a log line per request; anonymous refusals are sampled. Both carry the
 * route's template, never the path.
 */
export function createHttpMetrics(log: Log, metrics: Metrics) {
  const seconds = new Histogram({
    name: 'tollgate_gateway_http_duration_seconds',
    help: 'Time to answer an HTTP request',
    labelNames: ['route', 'method', 'status'],
    registers: [metrics],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5],
  })

  const samples = createLogSamples(log)

  function answered(request: FastifyRequest, { status, ms }: { status: number; ms: number }): void {
    const { method, routeOptions, params, correlationId, reason } = request
    const route = routeOptions.url ?? 'unknown'
    seconds.observe({ route, method, status }, ms / 1000)
    if (isAnonymousRefusal(request, status) && !samples.isSample({ route, method, status, reason }))
      return
    const level = routeOptions.config.rules?.document && status < 400 ? 'debug' : 'info'
    if (!log.isLevelEnabled(level)) return
    const clientId = textMember(params, 'clientId')
    const appLabel =
      clientId !== undefined && /^app_[0-9a-f]{24}$/.test(clientId) ? { clientId } : {}
    const tenths = Math.round(ms * 10) / 10
    log[level]({ route, method, status, reason, ms: tenths, ...appLabel, correlationId }, 'request')
  }

  function malformed(
    method: string,
    { correlationId, status, reason }: { correlationId: string; status: number; reason: Reason },
  ): void {
    const fields = { route: 'malformed', method, status, reason }
    seconds.observe({ route: 'malformed', method, status }, 0)
    if (samples.isSample(fields)) log.info({ ...fields, correlationId }, 'request')
  }

  function failed({ correlationId, routeOptions }: FastifyRequest, error: DomainError): void {
    const route = routeOptions.url ?? 'unknown'
    if (!samples.isSample({ route, failure: error.reason })) return
    const where = { route, correlationId }
    const cause = error.cause instanceof Error ? error.cause : error
    // A bug is logged with its stack; an outage, which fails every request, in one line.
    if (error.reason === 'INTERNAL') log.error({ ...where, err: cause }, 'request failed')
    else
      log.warn(
        { ...where, reason: error.reason, why: cause.message },
        'request could not be served',
      )
  }

  return { answered, malformed, failed, stop: samples.summarize }
}

/**
 * Whether a stranger can cause this line: the request was refused without an accepted credential.
 */
function isAnonymousRefusal(request: FastifyRequest, status: number): boolean {
  if (status < 400) return false
  const { authorization, session } = request.credential ?? {}
  const hasCredential = authorization !== undefined || session !== undefined
  return request.is404 || !hasCredential || status === 401 || status === 429 || status === 503
}

export type HttpMetrics = ReturnType<typeof createHttpMetrics>

/** Measures and logs every reply of the listener. */
export function observeReplies(app: App, httpMetrics: HttpMetrics): void {
  app.addHook('onResponse', (request, reply, done) => {
    httpMetrics.answered(request, { status: reply.raw.statusCode, ms: reply.elapsedTime })
    done()
  })
}
