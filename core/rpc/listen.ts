import { type Server, ServerCredentials } from '@grpc/grpc-js'
import { listenError } from '../lib/http.ts'

export interface GrpcListening {
  readonly port: number
  stop(graceMs: number): Promise<void>
}

/** Opens the server's port. A taken port is one clear error that names CORE_PORT. */
export async function listenGrpc(
  server: Server,
  at: { host: string; port: number },
): Promise<GrpcListening> {
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  server.bindAsync(`${at.host}:${at.port}`, ServerCredentials.createInsecure(), (error, port) =>
    error
      ? reject(
          listenError(
            Object.assign(error, {
              code: /EADDRINUSE|address already in use/i.test(error.message)
                ? 'EADDRINUSE'
                : undefined,
            }),
            { ...at, setting: 'CORE_PORT' },
          ),
        )
      : resolve(port),
  )
  return { port: await promise, stop: (graceMs) => stopGrpc(server, graceMs) }
}

function stopGrpc(server: Server, graceMs: number): Promise<void> {
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
