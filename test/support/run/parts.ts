/**
 * External parts of a vitest project. Null means the embedded part: PostgreSQL from the
 * dependencies, the in-process cache, events in direct mode.
 */
export type Parts = {
  databaseUrl: string | null
  redisUrl: string | null
  kafkaBrokers: string[] | null
}

declare module 'vitest' {
  interface ProvidedContext {
    parts: Parts
    /** URL of the run's database server (global-setup.ts). */
    databases: string
  }
}

export const embeddedParts: Parts = { databaseUrl: null, redisUrl: null, kafkaBrokers: null }

const VARIABLES = ['TEST_DATABASE_URL', 'TEST_REDIS_URL', 'TEST_KAFKA_BROKERS'] as const

/** Returns the variables that are missing for the end-to-end tests on real parts. */
export function missingParts(env: NodeJS.ProcessEnv): string[] {
  return VARIABLES.filter((name) => !env[name])
}

const KEYCLOAK = ['TEST_KEYCLOAK_URL', 'TEST_KEYCLOAK_ADMIN'] as const

/** Returns the variables that are missing for the tests with a real Keycloak. */
export function missingProvider(env: NodeJS.ProcessEnv): string[] {
  return KEYCLOAK.filter((name) => !env[name])
}

/** Returns the variables that are missing for the tests with stripe-mock. */
export function missingStripe(env: NodeJS.ProcessEnv): string[] {
  return ['TEST_STRIPE_MOCK_URL'].filter((name) => !env[name])
}

/** Returns the real parts that the environment names; null for embedded ones. */
export function externalParts(env: NodeJS.ProcessEnv): Parts {
  return {
    databaseUrl: env['TEST_DATABASE_URL'] || null,
    redisUrl: env['TEST_REDIS_URL'] || null,
    kafkaBrokers: env['TEST_KAFKA_BROKERS']?.split(',').filter(Boolean) ?? null,
  }
}
