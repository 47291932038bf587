import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'
import {
  embeddedParts,
  externalParts,
  missingParts,
  missingProvider,
  missingStripe,
} from './support/run/parts.ts'
import { partsReporter } from './support/run/reporter.ts'
import { openRun } from './support/run/secrecy.ts'

const root = `${import.meta.dirname}/..`
// Lets workers, and the processes that tests start, share compiled code.
process.env['NODE_COMPILE_CACHE'] ??= `${root}/node_modules/.cache/tollgate`

const parts = externalParts(process.env)
const hasRealParts = missingParts(process.env).length === 0
const logs = openRun(process.env)
/** Used in every project: finds secrets in logs, restores what a file changed. */
const setupFiles = [`${import.meta.dirname}/support/run/file-setup.ts`]

/**
 * Tests in which the parts make a difference: pushed events instead of a stream, counters in the
 * process instead of Redis, the embedded database. If the real parts are available, only these also
 * run on embedded parts.
 */
const storiesOfParts = ['exactly-once', 'first-light', 'limits'].map(
  (name) => `test/e2e/${name}.test.ts`,
)

/** Every other project runs after Keycloak's. */
const sequence = { groupOrder: 1 }

/** Runs the end-to-end tests on the real parts, if the environment names all of them. */
const realStories = {
  test: {
    name: 'e2e-real',
    sequence,
    include: ['test/e2e/**/*.test.ts'],
    provide: { parts },
    setupFiles,
  },
}

/**
 * Runs with a real Keycloak, if the environment names one. It runs first, because Keycloak fails to
 * create realms when it was idle for a quarter of an hour.
 */
const keycloakStory = {
  test: {
    name: 'keycloak',
    include: ['test/keycloak/**/*.test.ts'],
    provide: { parts },
    setupFiles,
  },
}

/** Sends the requests to Stripe to Stripe's own double, if the environment names one. */
const stripeStory = {
  test: {
    name: 'stripe-mock',
    sequence,
    include: ['test/stripe-mock/**/*.test.ts'],
    provide: { parts },
    setupFiles,
  },
}

export default defineConfig({
  root,
  test: {
    globalSetup: ['test/support/run/global-setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    teardownTimeout: 20_000,
    // A busy host stops for seconds. What becomes true is found at once; only a failure waits.
    expect: { poll: { timeout: 15_000 } },
    // Many tests wait for processes and timers, so more workers than processors are of use.
    maxWorkers: Math.ceil(availableParallelism() * 1.5),
    // Files of a worker share one process, which loads and compiles the code once. No file may
    // leave anything behind: the setup file restores mocks, timers and environment variables.
    isolate: false,
    reporters: ['default', partsReporter(process.env, logs)],
    projects: [
      {
        test: {
          name: 'unit',
          sequence,
          include: ['test/**/*.test.ts'],
          exclude: ['citus', 'e2e', 'install', 'keycloak', 'pictures', 'stripe-mock'].map(
            (folder) => `test/${folder}/**`,
          ),
          provide: { parts },
          setupFiles,
        },
      },
      {
        test: {
          name: 'e2e-embedded',
          sequence,
          include: hasRealParts ? storiesOfParts : ['test/e2e/**/*.test.ts'],
          provide: { parts: embeddedParts },
          setupFiles,
        },
      },
      ...(hasRealParts ? [realStories] : []),
      ...(missingProvider(process.env).length === 0 ? [keycloakStory] : []),
      ...(missingStripe(process.env).length === 0 ? [stripeStory] : []),
    ],
  },
})
