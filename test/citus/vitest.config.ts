import { defineConfig } from 'vitest/config'
import { externalParts } from '../support/run/parts.ts'

const { CITUS_URL } = process.env
if (!CITUS_URL)
  throw new Error(
    'CITUS_URL is not set; it is the address of the coordinator of a Citus cluster (test/README.md)',
  )
process.env['TEST_DATABASE_URL'] = CITUS_URL

/** End-to-end tests on a distributed schema: `npm run test:citus`. */
export default defineConfig({
  root: `${import.meta.dirname}/../..`,
  test: {
    globalSetup: ['test/support/run/global-setup.ts'],
    include: [
      'test/citus/*.test.ts',
      ...[
        'first-light',
        'exactly-once',
        'escrow',
        'renewals',
        'plan-orders',
        'top-ups',
        'collection',
        'receipts',
      ].map((name) => `test/e2e/${name}.test.ts`),
    ],
    provide: { parts: { ...externalParts(process.env), kafkaBrokers: null } },
    setupFiles: ['test/support/run/file-setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    teardownTimeout: 20_000,
    isolate: false,
    maxWorkers: 1,
  },
})
