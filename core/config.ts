import { type EscrowConfig, readEscrowConfig } from './balances/config.ts'
import { type BillingConfig, readBillingConfig } from './billing/config.ts'
import { type BooksConfig, readBooksConfig } from './books/config.ts'
import { type IdentityConfig, readIdentityConfig } from './identity/config.ts'
import type { EnvReader } from './lib/env.ts'
import { type BackendConfig, readBackendConfig } from './metering/backend/config.ts'
import { type MailConfig, readMailConfig } from './mail/config.ts'
import { type MeteringConfig, readMeteringConfig } from './metering/config.ts'
import { type PlansConfig, readPlansConfig } from './plans/config.ts'
import { type SharedConfig, readPlatformConfig } from './shared/config.ts'
import { type ServerConfig, readServerConfig } from './rpc/config.ts'
import { type TokensConfig, readTokensConfig } from './tokens/config.ts'

export interface CoreConfig {
  readonly server: ServerConfig
  readonly shared: SharedConfig
  readonly backend: BackendConfig
  readonly metering: MeteringConfig
  readonly plans: PlansConfig
  readonly mail: MailConfig
  readonly identity: IdentityConfig
  readonly tokens: TokensConfig
  readonly escrow: EscrowConfig
  readonly billing: BillingConfig
  readonly books: BooksConfig
}

/**
 * Reads core's settings, module by module. Collects problems in `env.problems`; the result is valid
 * only if there are no problems.
 */
export const readCoreConfig = (env: EnvReader): CoreConfig => ({
  server: readServerConfig(env),
  shared: readPlatformConfig(env),
  backend: readBackendConfig(env),
  metering: readMeteringConfig(env),
  plans: readPlansConfig(env),
  mail: readMailConfig(env),
  identity: readIdentityConfig(env),
  tokens: readTokensConfig(env),
  escrow: readEscrowConfig(env),
  billing: readBillingConfig(env),
  books: readBooksConfig(env),
})
