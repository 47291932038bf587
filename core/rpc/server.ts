import { setTimeout as sleep } from 'node:timers/promises'
import { Server, ServerCredentials } from '@grpc/grpc-js'
import type { ServiceTokens } from '../lib/core-link/address.ts'
import type { ServerTls } from '../lib/core-link/tls.ts'
import { createAdmission, createOperatorCheck, createRoleCheck } from './admission.ts'
import { type ConnectionLimits, createConnections, usualConnectionLimits } from './connections.ts'
import { addHealthAndReflection } from './health.ts'
import { openListener } from './listener.ts'
import type { Reloadable } from '../lib/settings/reloadable.ts'
import { limitMessages } from './message-limit.ts'
import {
  type Admission,
  type BinderDeps,
  type Service,
  createBinder,
  toServicePath,
} from './serve.ts'
import { watchStreams } from './streams.ts'

// Imports have the largest messages. Each RPC has its own limit below this one.
const messageMaxBytes = 16 * 1024 * 1024
/**
 * Maximum message size of an RPC without its own limit: a body of the REST API, which is at most 1
 * MiB, and its frame.
 */
export const smallMessageBytes = 1024 * 1024 + 64 * 1024
const maxStreams = 1_000

export interface GrpcServer {
  readonly port: number
  /** Sets the status that grpc.health.v1 returns. Initially NOT_SERVING. */
  setServing(serving: boolean): void
  /** Stops accepting calls, lets running ones finish within `graceMs`, then ends them. */
  stop(graceMs: number): Promise<void>
}

export interface ServerDeps extends Omit<BinderDeps, 'isOperator'> {
  readonly host: string
  readonly port: number
  readonly serviceTokens: Reloadable<ServiceTokens>
  /** TLS settings; plain text if undefined. */
  readonly tls?: ServerTls | undefined
  /** Other connection limits, for tests. */
  readonly limits?: Partial<ConnectionLimits>
}

/**
 * Serves `services`, health and reflection on one port. Rejects with one clear error that names
 * CORE_PORT if the port is occupied.
 */
export async function startGrpcServer(
  services: readonly Service[],
  deps: ServerDeps,
): Promise<GrpcServer> {
  const rolesOf = createRoleCheck(deps.serviceTokens)
  const isOperator = createOperatorCheck(rolesOf)
  const { refuseUnread, bind } = createBinder({ ...deps, isOperator })
  const admissions = toAdmissions(services)
  const server = new Server({
    'grpc.max_receive_message_length': messageMaxBytes,
    'grpc.max_concurrent_streams': maxStreams,
    interceptors: [createAdmission({ rolesOf, admissions, refuseUnread })],
  })
  for (const { definition, handlers } of services)
    server.addService(definition, bind(definition, handlers))
  const health = addHealthAndReflection(server)
  // grpc-js could bind a port itself, but it does not limit connections or report failed
  // handshakes.
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
    // Ask every session to end. The callback does not wait for their calls, because Node closes the
    // sessions first.
    server.tryShutdown(() => {})
    await Promise.race([closed, sleep(graceMs, undefined, { ref: false })])
    server.forceShutdown()
    unwatch()
  }
  return { port: listener.port, setServing: health.set, stop }
}

/** The admission rules of each RPC, by path. */
function toAdmissions(services: readonly Service[]): Map<string, Admission> {
  const admissions = services.flatMap(({ definition, handlers }) =>
    Object.entries(handlers).map(
      ([name, handler]) => [toServicePath(definition, name), handler] as const,
    ),
  )
  return new Map<string, Admission>(admissions)
}
