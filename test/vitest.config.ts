import { defineConfig } from 'vitest/config'
import { embeddedParts, externalParts, missingParts } from './support/parts.ts'
import { partsReporter } from './support/reporter.ts'
import { openRun } from './support/secrecy.ts'

const parts = externalParts(process.env)
const hasRealParts = missingParts(process.env).length === 0
const logs = openRun(process.env)
/** In every project: no secret may stand in a log. */
const setupFiles = [`${import.meta.dirname}/support/secrecy-setup.ts`]

/** The end-to-end stories run on the embedded parts, and again on the real ones when the environment names all of them. */
const realStories = {
  test: {
    name: 'e2e-real',
    include: ['test/e2e/**/*.test.ts'],
    provide: { parts },
    setupFiles,
  },
}

export default defineConfig({
  root: `${import.meta.dirname}/..`,
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
          exclude: ['test/e2e/**', 'test/bench/**'],
          provide: { parts },
          setupFiles,
        },
      },
      {
        test: {
          name: 'e2e-embedded',
          include: ['test/e2e/**/*.test.ts'],
          // Waits a minute for the sweep of cores that know PostgreSQL only: once is enough.
          exclude: hasRealParts ? ['test/e2e/renewals.test.ts'] : [],
          provide: { parts: embeddedParts },
          setupFiles,
        },
      },
      ...(hasRealParts ? [realStories] : []),
    ],
  },
})
