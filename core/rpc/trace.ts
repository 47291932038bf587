import type { Metadata, handleServerStreamingCall, handleUnaryCall } from '@grpc/grpc-js'
import { reasonTrailer } from '../../proto/errors.ts'
import { type OpenSpan, type Tracing, activeTracing } from '../lib/telemetry/tracing.ts'

/** Gives each call a span. Returns the handler itself when traces are off. */
export function traceUnary<Request, Response>(
  path: string,
  handler: handleUnaryCall<Request, Response>,
): handleUnaryCall<Request, Response> {
  const tracing = activeTracing()
  if (tracing === null) return handler
  return (call, done) => {
    const span = serve(tracing, path, call.metadata)
    span.run(() =>
      handler(call, (error, ...answer) => {
        span.end(failureOf(error))
        done(error, ...answer)
      }),
    )
  }
}

/** Gives each stream a span that lasts as long as the stream. */
export function traceStream<Request, Response>(
  path: string,
  handler: handleServerStreamingCall<Request, Response>,
): handleServerStreamingCall<Request, Response> {
  const tracing = activeTracing()
  if (tracing === null) return handler
  return (call) => {
    const span = serve(tracing, path, call.metadata)
    call.once('error', (error) => span.end(failureOf(error)))
    for (const event of ['finish', 'close', 'cancelled']) call.once(event, () => span.end())
    span.run(() => handler(call))
  }
}

function serve(tracing: Tracing, path: string, metadata: Metadata): OpenSpan {
  const [service = '', method = ''] = path.split('/')
  return tracing.serve({
    name: path,
    kind: 'server',
    attributes: { 'rpc.system': 'grpc', 'rpc.service': service, 'rpc.method': method },
    headers: {
      traceparent: textOf(metadata, 'traceparent'),
      tracestate: textOf(metadata, 'tracestate'),
    },
  })
}

const textOf = (metadata: Metadata, name: string): string => String(metadata.get(name)[0] ?? '')

/** The reason of a refusal; undefined for an answer. */
function failureOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined
  const metadata = 'metadata' in error ? error.metadata : undefined
  return isMetadata(metadata) ? textOf(metadata, reasonTrailer) : 'failed'
}

const isMetadata = (value: unknown): value is Metadata =>
  typeof value === 'object' && value !== null && 'get' in value
