import type { EnvReader } from '../env.ts'
import type { Live, Reloadable } from '../settings/reloadable.ts'
import { readSecrets, secretCharacters } from '../settings/shared.ts'
import { type ClientTls, readClientTls } from './tls.ts'

/**
 * Callers of core: the processes of a deployment, its operator, and internal services that only
 * read. Each role has its own tokens (docs/decisions/54.md, docs/decisions/71.md).
 */
export const serviceRoles = ['gateway', 'sidecar', 'collector', 'operator', 'service'] as const
export type ServiceRole = (typeof serviceRoles)[number]

export interface CoreAddress {
  /** host:port. */
  readonly target: string
  /** Proves to core that a process of the role is calling. */
  readonly token: Reloadable<string>
  /** All tokens of this process, the one in use first; just that one if absent. */
  readonly tokens?: Reloadable<readonly string[]>
  /** TLS settings; plain text if undefined. */
  readonly tls?: ClientTls | undefined
}

/** Reads core's gRPC address and the token of the calling process. */
export function readCoreAddress(env: EnvReader, role: ServiceRole): CoreAddress {
  const target = env.text('CORE_TARGET', {
    fallback: '127.0.0.1:50051',
    meaning: 'gRPC address of core, as host:port.',
  })
  if (!/^[^\s/@]+:\d{1,5}$/.test(target)) env.problem('CORE_TARGET must be host:port')
  return { target, ...readOwnTokens(env, role), tls: readClientTls(env) }
}

/**
 * The token that a process of this role sends: the first role token, otherwise the first common
 * one. The others are of use during a rotation.
 */
function readOwnTokens(env: EnvReader, role: ServiceRole) {
  const tokens = env.live(() => {
    const own = readRoleTokens(env, role)
    const common = readCommonTokens(env)
    return own.length > 0 ? own : common
  })
  if (tokens().length === 0) env.problem(noToken(tokenSetting(role)))
  return { token: () => tokens()[0] ?? '', tokens }
}

export type ServiceTokens = Readonly<Record<ServiceRole, readonly string[]>>

/**
 * The tokens that core accepts for each role: its own tokens, or the common ones if it has no own.
 */
export const readServiceTokens = (env: EnvReader): Live<ServiceTokens> =>
  env.live(() => readTokens(env))

function readTokens(env: EnvReader): ServiceTokens {
  const common = readCommonTokens(env)
  const own = serviceRoles.map((role) => [role, readRoleTokens(env, role)] as const)
  if (own.every(([, tokens]) => tokens.length === 0)) {
    if (common.length === 0) env.problem(noToken('CORE_TOKEN_GATEWAY and the like'))
    else if (!env.isEmbedded)
      env.warning(
        'CORE_TOKEN allows every process to call every RPC of core; set CORE_TOKEN_GATEWAY, CORE_TOKEN_SIDECAR and CORE_TOKEN_OPERATOR (docs/operations.md)',
      )
  }
  requireDistinct(env, own)
  const tokensOf = ([role, tokens]: (typeof own)[number]) => [
    role,
    tokens.length > 0 ? tokens : common,
  ]
  return Object.fromEntries(own.map(tokensOf))
}

// A token in two roles would silently open the RPCs of both.
function requireDistinct(
  env: EnvReader,
  own: readonly (readonly [ServiceRole, readonly string[]])[],
): void {
  const holders = new Map<string, ServiceRole>()
  for (const [role, tokens] of own)
    for (const token of tokens) {
      const holder = holders.get(token)
      if (holder !== undefined && holder !== role)
        env.problem(`${tokenSetting(holder)} and ${tokenSetting(role)} must differ`)
      holders.set(token, role)
    }
}

/** The setting with the token of a role. */
export const tokenSetting = (role: ServiceRole): string => `CORE_TOKEN_${role.toUpperCase()}`
const noToken = (name: string): string =>
  `CORE_TOKEN must have at least ${secretCharacters} characters, or set ${name} (openssl rand -base64 32)`

const readCommonTokens = (env: EnvReader): string[] =>
  readSecrets(env, 'CORE_TOKEN', {
    meaning:
      'Token of each role without a token of its own; at least 32 characters. Several, separated by commas, during a rotation: core accepts all, the other processes send the first.',
  })

const readRoleTokens = (env: EnvReader, role: ServiceRole): string[] =>
  readSecrets(env, tokenSetting(role), { meaning: `${senders[role]}, and core; like CORE_TOKEN.` })

const senders: Readonly<Record<ServiceRole, string>> = {
  gateway: 'Token that the gateway sends to core, for its RPCs only. Gateway',
  sidecar: 'Token that sidecars send to core, for their RPCs only. Sidecar',
  collector: 'Token for programs that only deliver events to core. Collector',
  operator: "Token of operators' commands, for their RPCs only. CLI",
  service:
    'Token of internal services, which read users, balances, usage, tickets, plans and subscriptions. Services',
}
