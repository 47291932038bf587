import type { EnvReader } from '../lib/env.ts'
import { readCoreToken, readHost } from '../lib/settings.ts'

export interface ServerConfig {
  readonly host: string
  readonly port: number
  /** Shared by our own processes: proves that a call to core comes from one of them. */
  readonly serviceToken: string
}

export const readServerConfig = (env: EnvReader): ServerConfig => ({
  host: readHost(env),
  port: env.port('CORE_PORT', { fallback: '50051', meaning: 'gRPC port of core.' }),
  serviceToken: readCoreToken(env),
})
