import {
  InterceptingCall,
  type Interceptor,
  type InterceptorOptions,
  ListenerBuilder,
  RequesterBuilder,
  status,
} from '@grpc/grpc-js'
import { activeTracing } from './tracing.ts'

/** Gives each call of a grpc-js client a span of the current trace, and sends `traceparent`. */
export const traceInterceptor: Interceptor = (options, nextCall) => {
  const span = activeTracing()?.startChild({
    name: nameOf(options),
    kind: 'client',
    attributes: { 'rpc.system': 'grpc' },
  })
  if (!span) return new InterceptingCall(nextCall(options))
  const listener = new ListenerBuilder()
    .withOnReceiveStatus((received, next) => {
      span.end(received.code === status.OK ? undefined : status[received.code])
      next(received)
    })
    .build()
  const requester = new RequesterBuilder()
    .withStart((metadata, _listener, next) => {
      for (const [name, value] of Object.entries(span.headers())) metadata.set(name, value)
      next(metadata, listener)
    })
    .build()
  return new InterceptingCall(nextCall(options), requester)
}

const nameOf = ({ method_definition: { path } }: InterceptorOptions): string =>
  path.replace(/^\//, '')
