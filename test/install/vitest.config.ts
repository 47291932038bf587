import { defineConfig } from 'vitest/config'

/** Tests that build programs or a root file system first: `npm run test:charts`, `npm run test:image`. */
export default defineConfig({
  root: `${import.meta.dirname}/../..`,
  test: {
    include: ['test/install/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    maxWorkers: 1,
  },
})
