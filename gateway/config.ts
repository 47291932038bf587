import type { EnvReader } from '../core/lib/env.ts'
import { type LoginProviderConfig, readLoginProvider } from './login-config.ts'
import { type EdgeConfig, readEdgeConfig } from './edge-config.ts'

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
  const platformPort = env.port('PLATFORM_PORT', {
    meaning: 'Port of the platform API (surface B and OIDC).', fallback: '8080',
  })
  return {
    host: env.text('HOST', { meaning: 'Address that every listener binds.', fallback: '127.0.0.1' }),
    platformPort,
    builderPort: env.port('BUILDER_PORT', {
      meaning: 'Port of the builder API (surface A).', fallback: '8081',
    }),
    publicUrl: readPublicUrl(env, platformPort),
    tokenAlg: env.choice('TOKEN_ALG', {
      meaning: 'Algorithm of new signing keys.', fallback: 'RS256', of: ['RS256', 'ES256'],
    }),
    edge: readEdgeConfig(env),
    validateV2: /^(1|true|yes)$/i.test(env.text('BPP_VALIDATE_V2', {
      meaning: '1, true or yes: keys are validated by POST /api/v1/auth/validate, and GET is gone.', fallback: '',
    })),
    loginProvider: readLoginProvider(env),
    core: {
      target: readCoreTarget(env),
      token: readCoreToken(env),
      deadlineMs: env.integer('GATEWAY_DEADLINE_MS', {
        meaning: 'How long the gateway waits for core, in milliseconds.',
        fallback: '5000', min: 10, max: 60_000,
      }),
    },
  }
}

function readPublicUrl(env: EnvReader, platformPort: number): string {
  const fallback = `http://localhost:${platformPort}`
  return env.url('PUBLIC_URL', {
    meaning: 'Origin under which clients reach the platform; the issuer is built from it.',
    fallback, schemes: ['http', 'https'],
  }) ?? fallback
}

function readCoreTarget(env: EnvReader): string {
  const target = env.text('CORE_TARGET', {
    meaning: 'Where core answers gRPC, as host:port.', fallback: '127.0.0.1:50051',
  })
  if (!/^[^\s/@]+:\d{1,5}$/.test(target)) env.problem('CORE_TARGET must be host:port')
  return target
}

function readCoreToken(env: EnvReader): string {
  const token = env.optional('CORE_TOKEN', {
    meaning: 'Shared by core, gateway, sidecar and CLI; at least 32 characters.', secret: true,
  }) ?? ''
  if (token.length < 32) env.problem('CORE_TOKEN must have at least 32 characters')
  return token
}
