import type { EnvReader } from '../core/lib/env.ts'
import { readCoreAddress } from '../core/lib/core-link/address.ts'
import { readHost, readPlatformPort, readPublicUrl } from '../core/lib/settings.ts'
import { type BuilderEdgeConfig, readBuilderEdge } from './builder-api/edge/config.ts'
import type { CoreOptions } from './core/call-context.ts'
import { type EdgeConfig, readEdgeConfig } from './http/config.ts'
import { type LoginProviderConfig, readLoginProvider } from './pages/config.ts'

export interface GatewayConfig {
  readonly host: string
  readonly platformPort: number
  readonly builderPort: number
  /** Undefined if the builder API has no edge. */
  readonly builderEdge?: BuilderEdgeConfig | undefined
  /** Prefix of every URL that we hand out; no trailing slash. */
  readonly publicUrl: string
  readonly tokenAlg: string
  readonly core: CoreOptions
  /** Whether the POST form of key validation replaces the GET form. */
  readonly validateV2?: boolean
  readonly edge: EdgeConfig
  readonly loginProvider?: LoginProviderConfig | undefined
}

/** Declares the gateway's settings. Collects problems in `env.problems`. */
export function readGatewayConfig(env: EnvReader): GatewayConfig {
  return {
    host: readHost(env),
    platformPort: readPlatformPort(env),
    builderPort: env.port('BUILDER_PORT', {
      meaning: 'Port of the builder API.',
      fallback: '8081',
    }),
    builderEdge: readBuilderEdge(env),
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
          '1, true or yes: POST /api/v1/auth/validate validates keys, and the GET route is removed.',
        fallback: '',
      }),
    ),
    loginProvider: readLoginProvider(env),
    core: {
      ...readCoreAddress(env, 'gateway'),
      deadlineMs: env.integer('GATEWAY_DEADLINE_MS', {
        meaning: 'How long the gateway waits for core, in milliseconds.',
        fallback: '5000',
        min: 10,
        max: 60_000,
      }),
    },
  }
}
