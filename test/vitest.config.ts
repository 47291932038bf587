import { defineConfig } from 'vitest/config'
import { embeddedParts, externalParts, missingParts, missingProvider } from './support/parts.ts'
import { partsReporter } from './support/reporter.ts'
import { openRun } from './support/secrecy.ts'

const root = `${import.meta.dirname}/..`
// Lets workers, and the processes that tests start, share compiled code.
process.env['NODE_COMPILE_CACHE'] ??= `${root}/node_modules/.cache/tollgate`

const parts = externalParts(process.env)
const hasRealParts = missingParts(process.env).length === 0
const logs = openRun(process.env)
/** Used in every project, so that secrets in logs are found. */
const setupFiles = [`${import.meta.dirname}/support/secrecy-setup.ts`]

/**
 * Tests in which the parts make a difference: pushed events instead of a stream, counters in the
 * process instead of Redis, the embedded database. If the real parts are available, only these also
 * run on embedded parts.
 */
const storiesOfParts = ['exactly-once', 'first-light', 'limits'].map(
  (name) => `test/e2e/${name}.test.ts`,
)

/** Runs the end-to-end tests on the real parts, if the environment names all of them. */
const realStories = {
  test: {
    name: 'e2e-real',
    include: ['test/e2e/**/*.test.ts'],
    provide: { parts },
    setupFiles,
  },
}

/** Runs with a real Keycloak, if the environment names one. */
const keycloakStory = {
  test: {
    name: 'keycloak',
    include: ['test/keycloak/**/*.test.ts'],
    provide: { parts },
    setupFiles,
  },
}

export default defineConfig({
  root,
  test: {
    globalSetup: ['test/support/global-setup.ts'],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    teardownTimeout: 20_000,
    maxWorkers: 2,
    reporters: ['default', partsReporter(process.env, logs)],
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: ['test/e2e/**', 'test/keycloak/**', 'test/bench/**'],
          provide: { parts },
          setupFiles,
        },
      },
      {
        test: {
          name: 'e2e-embedded',
          include: hasRealParts ? storiesOfParts : ['test/e2e/**/*.test.ts'],
          provide: { parts: embeddedParts },
          setupFiles,
        },
      },
      ...(hasRealParts ? [realStories] : []),
      ...(missingProvider(process.env).length === 0 ? [keycloakStory] : []),
    ],
  },
})
