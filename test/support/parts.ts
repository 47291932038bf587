/**
 * What the tests of a vitest project run on. A null part is the embedded one: PostgreSQL from the
 * dependencies, the in-process cache, events by direct mode.
 */
export type Parts = {
  databaseUrl: string | null
  redisUrl: string | null
  kafkaBrokers: string[] | null
}

declare module 'vitest' {
  interface ProvidedContext {
    parts: Parts
    /** Where the run's database server (support/global-setup.ts) answers. */
    databases: string
  }
}

export const embeddedParts: Parts = { databaseUrl: null, redisUrl: null, kafkaBrokers: null }

const VARIABLES = ['TEST_DATABASE_URL', 'TEST_REDIS_URL', 'TEST_KAFKA_BROKERS'] as const

/** The variables that are still needed for the end-to-end stories on real parts. */
export function missingParts(env: NodeJS.ProcessEnv): string[] {
  return VARIABLES.filter((name) => !env[name])
}

const KEYCLOAK = ['TEST_KEYCLOAK_URL', 'TEST_KEYCLOAK_ADMIN'] as const

/** The variables that are still needed for the suite before a real Keycloak. */
export function missingProvider(env: NodeJS.ProcessEnv): string[] {
  return KEYCLOAK.filter((name) => !env[name])
}

/** The real parts that the environment names; null for those that are embedded. */
export function externalParts(env: NodeJS.ProcessEnv): Parts {
  return {
    databaseUrl: env['TEST_DATABASE_URL'] || null,
    redisUrl: env['TEST_REDIS_URL'] || null,
    kafkaBrokers: env['TEST_KAFKA_BROKERS']?.split(',').filter(Boolean) ?? null,
  }
}
