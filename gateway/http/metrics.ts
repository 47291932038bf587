import type { FastifyRequest } from 'fastify'
import { Counter, Histogram } from 'prom-client'
import type { Log } from '../../core/lib/log.ts'
import { type Metrics, startAtZero } from '../../core/lib/metrics.ts'
import { type OpenSpan, activeTracing, describeFailure } from '../../core/lib/telemetry/tracing.ts'
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

  const responses = new Counter({
    name: 'tollgate_gateway_responses_total',
    help: 'HTTP responses by result: ok, refused (4xx), unavailable (502 to 504), failed (other 5xx)',
    labelNames: ['result'],
    registers: [metrics],
  })
  startAtZero(responses, { result: ['ok', 'refused', 'unavailable', 'failed'] })

  const samples = createLogSamples(log)

  function answered(request: FastifyRequest, { status, ms }: { status: number; ms: number }): void {
    const { method, routeOptions, params, correlationId, reason } = request
    const route = routeOptions.url ?? 'unknown'
    seconds.observe({ route, method, status }, ms / 1000)
    responses.inc({ result: resultOf(status) })
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
    responses.inc({ result: resultOf(status) })
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

function resultOf(status: number): 'ok' | 'refused' | 'unavailable' | 'failed' {
  if (status < 400) return 'ok'
  if (status < 500) return 'refused'
  return status >= 502 && status <= 504 ? 'unavailable' : 'failed'
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

declare module 'fastify' {
  interface FastifyRequest {
    /** Undefined when traces are off. */
    span: OpenSpan | undefined
  }
}

/** Gives each request a span, and runs its other hooks and its handler in it. */
export function traceRequests(app: App): void {
  const tracing = activeTracing()
  if (tracing === null) return
  app.decorateRequest('span', undefined)
  app.addHook('onRequest', (request, _, done) => {
    const route = request.routeOptions.url ?? 'unknown'
    request.span = tracing.serve({
      name: `${request.method} ${route}`,
      kind: 'server',
      attributes: { 'http.request.method': request.method, 'http.route': route },
      headers: request.raw.headers,
      isPublic: true,
    })
    request.span.run(done)
  })
  // The body arrives in the context of its connection.
  app.addHook('preValidation', ({ span }, _, done) => (span ? span.run(done) : done()))
  app.addHook('onResponse', ({ span }, { raw: { statusCode } }, done) => {
    if (span === undefined) return done()
    span.annotate({ 'http.response.status_code': statusCode })
    span.end(describeFailure(statusCode))
    span.run(done)
  })
}
