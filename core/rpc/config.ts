import type { EnvReader } from '../lib/env.ts'
import { type ServiceTokens, readServiceTokens } from '../lib/core-link/address.ts'
import type { Reloadable } from '../lib/settings/reloadable.ts'
import { type ServerTls, readServerTls } from '../lib/core-link/tls.ts'

export interface ServerConfig {
  readonly host: string
  readonly port: number
  readonly serviceTokens: Reloadable<ServiceTokens>
  /** TLS settings; plain text if undefined. */
  readonly tls: ServerTls | undefined
}

export const readServerConfig = (env: EnvReader): ServerConfig => ({
  host: env.text('CORE_HOST', {
    fallback: '127.0.0.1',
    meaning: 'Address that core binds for gRPC; it must not be public.',
  }),
  port: env.port('CORE_PORT', { fallback: '50051', meaning: 'gRPC port of core.' }),
  serviceTokens: readServiceTokens(env),
  tls: readServerTls(env),
})
