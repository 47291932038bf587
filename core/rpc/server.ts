import { setTimeout as sleep } from 'node:timers/promises'
import { Server, ServerCredentials } from '@grpc/grpc-js'
import type { ServiceTokens } from '../lib/core-link/address.ts'
import type { ServerTls } from '../lib/core-link/tls.ts'
import { createAdmission, createRoleCheck } from './admission.ts'
import { type ConnectionLimits, createConnections, usualConnectionLimits } from './connections.ts'
import { addHealthAndReflection } from './health.ts'
import { openListener } from './listener.ts'
import { limitMessages } from './message-limit.ts'
import { type Admission, type BinderDeps, type Service, createBinder, pathOf } from './serve.ts'
import { watchStreams } from './streams.ts'

// Importing takes the largest messages. Each RPC has a bound of its own below this one.
const messageMaxBytes = 16 * 1024 * 1024
/** Longest message of an RPC that names no limit of its own: a body of the REST API, which ends at 1 MiB, and its frame. */
export const smallMessageBytes = 1024 * 1024 + 64 * 1024
const maxStreams = 1_000

export interface GrpcServer {
  readonly port: number
  /** What grpc.health.v1 answers from now on; NOT_SERVING at first. */
  setServing(serving: boolean): void
  /** Takes no new calls, lets running ones finish until `graceMs`, then ends them. */
  stop(graceMs: number): Promise<void>
}

export interface ServerDeps extends BinderDeps {
  readonly host: string
  readonly port: number
  readonly serviceTokens: ServiceTokens
  /** Plain text without it. */
  readonly tls?: ServerTls | undefined
  /** Other bounds of connections, for tests. */
  readonly limits?: Partial<ConnectionLimits>
}

/** Serves `services`, health and reflection on one port. A taken port is one clear error that names CORE_PORT. */
export async function startGrpcServer(
  services: readonly Service[],
  deps: ServerDeps,
): Promise<GrpcServer> {
  const { refuseUnread, bind } = createBinder(deps)
  const rolesOf = createRoleCheck(deps.serviceTokens)
  const admissions = admissionsOf(services)
  const server = new Server({
    'grpc.max_receive_message_length': messageMaxBytes,
    'grpc.max_concurrent_streams': maxStreams,
    interceptors: [createAdmission({ rolesOf, admissions, refuseUnread })],
  })
  for (const { definition, handlers } of services)
    server.addService(definition, bind(definition, handlers))
  const health = addHealthAndReflection(server)
  // grpc-js would bind a port itself, but bounds no connections and says nothing of failed handshakes.
  const { injectConnection } = server.createConnectionInjector(ServerCredentials.createInsecure())
  const isServiceToken = (token: string): boolean => rolesOf(token) !== undefined
  const connections = createConnections(
    { ...usualConnectionLimits, ...deps.limits },
    isServiceToken,
  )
  const listener = await openListener({
    ...deps,
    onAccept: connections.admit,
    onConnection: injectConnection,
  })
  const maxBytesOf = (path: string): number =>
    admissions.get(path)?.messageMaxBytes ?? smallMessageBytes
  const unwatch = watchStreams(listener.port, (opened) => {
    connections.judgeStream(opened)
    limitMessages(opened, maxBytesOf)
  })
  async function stop(graceMs: number): Promise<void> {
    const closed = listener.close()
    // Every session is told to end; its callback does not wait for their calls, since Node itself closes the sessions first.
    server.tryShutdown(() => {})
    await Promise.race([closed, sleep(graceMs, undefined, { ref: false })])
    server.forceShutdown()
    unwatch()
  }
  return { port: listener.port, setServing: health.set, stop }
}

/** What each RPC demands of its callers, by its path. */
export function admissionsOf(services: readonly Service[]): Map<string, Admission> {
  const admissions = services.flatMap(({ definition, handlers }) =>
    Object.entries(handlers).map(([name, handler]) => [pathOf(definition, name), handler] as const),
  )
  return new Map<string, Admission>(admissions)
}
