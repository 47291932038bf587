import { Server, ServerCredentials } from '@grpc/grpc-js'
import { listenError } from '../lib/http.ts'
import { addHealthAndReflection } from './health.ts'
import { type ServeDeps, type Service, createBinder } from './serve.ts'

const messageMaxBytes = 16 * 1024 * 1024

export interface GrpcServer {
  readonly port: number
  /** What grpc.health.v1 answers from now on; NOT_SERVING at first. */
  setServing(serving: boolean): void
  /** Takes no new calls, lets running ones finish until `graceMs`, then ends them. */
  stop(graceMs: number): Promise<void>
}

/** Serves `services`, health and reflection on one port. A taken port is one clear error that names CORE_PORT. */
export async function startGrpcServer(
  services: readonly Service[],
  deps: ServeDeps & { readonly host: string; readonly port: number },
): Promise<GrpcServer> {
  const binder = createBinder(deps)
  const server = new Server({
    'grpc.max_receive_message_length': messageMaxBytes,
    'grpc.max_concurrent_streams': 1_000,
  })
  for (const { definition, handlers } of services)
    server.addService(definition, binder.bind(definition, handlers))
  const health = addHealthAndReflection(server)
  const port = await listen(server, deps)
  return { port, setServing: health.set, stop: (graceMs) => stop(server, graceMs) }
}

function listen(server: Server, at: { host: string; port: number }): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  server.bindAsync(`${at.host}:${at.port}`, ServerCredentials.createInsecure(), (error, port) => {
    if (!error) return resolve(port)
    const isTaken = /EADDRINUSE|address already in use/i.test(error.message)
    const withCode = Object.assign(error, { code: isTaken ? 'EADDRINUSE' : undefined })
    reject(listenError(withCode, { ...at, setting: 'CORE_PORT' }))
  })
  return promise
}

function stop(server: Server, graceMs: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(() => {
    server.forceShutdown()
    resolve()
  }, graceMs)
  server.tryShutdown(() => {
    clearTimeout(timer)
    resolve()
  })
  return promise
}
