import { AsyncLocalStorage } from 'node:async_hooks'
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { DomainError } from '../../../proto/errors.ts'

export type Attributes = Readonly<Record<string, string | number>>

export interface SpanStart {
  /** A route, an RPC or a statement, never with the values of a request. */
  readonly name: string
  readonly kind: 'server' | 'client'
  readonly attributes?: Attributes
  /** Headers of the request that the span serves. Its parent is in `traceparent`, if any. */
  readonly headers?: IncomingHttpHeaders
  /**
   * Whether anybody may send the request. Then the span begins a trace of its own, for which this
   * process decides whether it is kept, and has a link to the caller's span.
   */
  readonly isPublic?: boolean
}

export interface OpenSpan {
  /** Runs work as part of the span. Spans that it starts become children. */
  run<T>(work: () => T): T
  annotate(attributes: Attributes): void
  /** The headers that continue the trace in another process. */
  headers(): Readonly<Record<string, string>>
  /** Ends the span, with the reason of its failure if it failed. Only the first call counts. */
  end(failure?: string): void
}

/** Distributed traces of this process. */
export interface Tracing {
  /** Starts a span that serves a request. */
  serve(start: SpanStart): OpenSpan
  /** Starts a span in the current one; null without a current one. */
  startChild(start: SpanStart): OpenSpan | null
  /** Starts a span in the current one, or in a new trace without a current one. */
  startCall(start: SpanStart): OpenSpan
  /** Adds attributes to the current span. */
  annotate(attributes: Attributes): void
  /** The current span's ids, for log lines. */
  logFields(): Readonly<Record<string, string>>
}

let active: Tracing | null = null

/**
 * The traces of this process; null when they are off. They are set before its parts start and never
 * change, so a part may read them once.
 */
export const activeTracing = (): Tracing | null => active

export function setTracing(tracing: Tracing | null): void {
  active = tracing
}

/**
 * Runs a callback that an emitter calls later in the current span, because listeners run in the
 * context of the emitter.
 */
export const inCurrentSpan = <Args extends unknown[], R>(
  listener: (...args: Args) => R,
): ((...args: Args) => R) => (active === null ? listener : AsyncLocalStorage.bind(listener))

const noHeaders = {}

/**
 * Makes a call to another process in a span of the current trace. `call` gets the headers to send;
 * without a trace they are empty.
 */
export function traceCall<T>(
  name: string,
  call: (headers: Readonly<Record<string, string>>) => Promise<T>,
): Promise<T> {
  const span = active?.startChild({ name, kind: 'client' }) ?? null
  return span === null
    ? call(noHeaders)
    : finish(
        span,
        span.run(() => call(span.headers())),
      )
}

/**
 * Makes a request to an outside service in a span of the current trace, or of a new one, because
 * loops also make such requests. `call` gets the headers to send; they are empty if traces are off.
 */
export function traceOutgoing<T>(
  name: string,
  call: (headers: Readonly<Record<string, string>>) => Promise<T>,
): Promise<T> {
  if (active === null) return call(noHeaders)
  const span = active.startCall({ name, kind: 'client' })
  return finish(
    span,
    span.run(() => call(span.headers())),
  )
}

async function finish<T>(span: OpenSpan, work: Promise<T>): Promise<T> {
  try {
    const result = await work
    span.end()
    return result
  } catch (error) {
    span.end(error instanceof DomainError ? error.reason : 'failed')
    throw error
  }
}

type Handler = (request: IncomingMessage, response: ServerResponse) => void

/** Gives each request to a raw handler a span. Returns the handler itself when traces are off. */
export function traceHandler(route: string, handler: Handler): Handler {
  const tracing = active
  if (tracing === null) return handler
  return (request, response) => {
    const span = tracing.serve({
      name: `${request.method ?? ''} ${route}`,
      kind: 'server',
      attributes: { 'http.request.method': request.method ?? '', 'http.route': route },
      headers: request.headers,
    })
    response.once('close', () => {
      const { statusCode, writableFinished } = response
      span.annotate({ 'http.response.status_code': statusCode })
      span.end(writableFinished ? describeFailure(statusCode) : 'the client disconnected')
    })
    span.run(() => handler(request, response))
  }
}

/** Only the server's own failures mark a span as failed. */
export const describeFailure = (status: number): string | undefined =>
  status >= 500 ? `status ${status}` : undefined
