import { defineConfig } from 'vitest/config'
import { embeddedParts, externalParts, missingParts, missingProvider } from './support/parts.ts'
import { partsReporter } from './support/reporter.ts'
import { openRun } from './support/secrecy.ts'

const root = `${import.meta.dirname}/..`
// Workers, and the processes that tests start, find each other's compiled code.
process.env['NODE_COMPILE_CACHE'] ??= `${root}/node_modules/.cache/tollgate`

const parts = externalParts(process.env)
const hasRealParts = missingParts(process.env).length === 0
const logs = openRun(process.env)
/** In every project: no secret may stand in a log. */
const setupFiles = [`${import.meta.dirname}/support/secrecy-setup.ts`]

/**
 * Where the parts make a difference: events pushed in place of a stream, counters in the process in place of Redis, the
 * embedded database. With the real parts there, the other stories run on them only.
 */
const storiesOfParts = ['exactly-once', 'first-light', 'limits'].map(
  (name) => `test/e2e/${name}.test.ts`,
)

/** The end-to-end stories run on the embedded parts, and again on the real ones when the environment names all of them. */
const realStories = {
  test: {
    name: 'e2e-real',
    include: ['test/e2e/**/*.test.ts'],
    provide: { parts },
    setupFiles,
  },
}

/** Runs before a real Keycloak, where the environment names one. */
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
