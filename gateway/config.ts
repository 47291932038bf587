import type { EnvReader } from '../core/lib/env.ts'
import { type LoginProviderConfig, readLoginProvider } from './login-config.ts'
import { type EdgeConfig, readEdgeConfig } from './edge-config.ts'
import { readCoreAddress, readHost, readPlatformPort, readPublicUrl } from '../core/lib/settings.ts'

export interface GatewayConfig {
  readonly host: string
  readonly platformPort: number
  readonly builderPort: number
  /** What every URL handed out is built from; no trailing slash. */
  readonly publicUrl: string
  readonly tokenAlg: string
  readonly core: CoreAddress
  /** The POST form of key validation takes the GET form's place. */
  readonly validateV2?: boolean
  readonly edge: EdgeConfig
  readonly loginProvider?: LoginProviderConfig | undefined
}

export interface CoreAddress {
  /** host:port of core's gRPC listener. */
  readonly target: string
  readonly token: string
  readonly deadlineMs: number
}

/** Declares the gateway's settings. What is wrong with them stands in `env.problems`. */
export function readGatewayConfig(env: EnvReader): GatewayConfig {
  return {
    host: readHost(env),
    platformPort: readPlatformPort(env),
    builderPort: env.port('BUILDER_PORT', {
      meaning: 'Port of the builder API (surface A).',
      fallback: '8081',
    }),
    publicUrl: readPublicUrl(env),
    tokenAlg: env.choice('TOKEN_ALG', {
      meaning: 'Algorithm of new signing keys.',
      fallback: 'RS256',
      of: ['RS256', 'ES256'],
    }),
    edge: readEdgeConfig(env),
    validateV2: /^(1|true|yes)$/i.test(
      env.text('BPP_VALIDATE_V2', {
        meaning:
          '1, true or yes: keys are validated by POST /api/v1/auth/validate, and GET is gone.',
        fallback: '',
      }),
    ),
    loginProvider: readLoginProvider(env),
    core: {
      ...readCoreAddress(env),
      deadlineMs: env.integer('GATEWAY_DEADLINE_MS', {
        meaning: 'How long the gateway waits for core, in milliseconds.',
        fallback: '5000',
        min: 10,
        max: 60_000,
      }),
    },
  }
}
