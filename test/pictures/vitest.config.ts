import { defineConfig } from 'vitest/config'
import { externalParts } from '../support/run/parts.ts'

// The browser of the tests, or Debian's.
process.env['TEST_CHROMIUM'] ??= '/usr/bin/chromium'

/** Takes pictures of all views: `npm run pictures`. */
export default defineConfig({
  root: `${import.meta.dirname}/../..`,
  test: {
    globalSetup: ['test/support/run/global-setup.ts'],
    include: ['test/pictures/*.test.ts'],
    provide: { parts: externalParts(process.env) },
    setupFiles: ['test/support/run/file-setup.ts'],
    testTimeout: 1_800_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 30_000 } },
  },
})
