/**
 * Sizes of the tests that repeat one promise many times: of every run, and of `npm run soak`
 * (TEST_SIZES=large). A variable of its own sets one size.
 */
const sizes = {
  /** Events of `exactly-once.test.ts`. */
  TEST_EVENTS: [10_000, 300_000],
  /** Top-ups of `top-ups.test.ts`. */
  TEST_TOP_UPS: [100, 10_000],
  /** Checkouts of `plan-orders.test.ts`. */
  TEST_PLAN_ORDERS: [100, 2_000],
  /** Users who spend on credit in `collection.test.ts`. */
  TEST_DEBTORS: [40, 600],
  /** Kills of core in `collection.test.ts`. */
  TEST_COLLECTION_KILLS: [3, 20],
  /** Users of `renewals.test.ts`. */
  TEST_USERS: [800, 100_000],
  /** Seconds for which users pay in `escrow-soak.test.ts`. */
  TEST_SOAK_SECONDS: [10, 600],
  /** Seconds of `hostile/flood.test.ts`. */
  TEST_FLOOD_SECONDS: [2, 30],
  /** Hostile values for each string of each request in `hostile/strings.test.ts`. */
  TEST_STRINGS: [3, 18],
  /** Users of the long list in `dashboard/views.test.ts`. */
  TEST_TABLE_ROWS: [1_200, 100_000],
  /** Histories of the simulation; `npm run simulate` runs any number. */
  TEST_HISTORIES: [2_500, 100_000],
  /** Milliseconds of random requests in the sidecar's `property.test.ts`, after its fixed number. */
  TEST_FUZZ_MS: [0, 300_000],
} as const

/** Returns the size for this run. */
export function readSize(name: keyof typeof sizes): number {
  const [small, large] = sizes[name]
  return Number(process.env[name] ?? (process.env['TEST_SIZES'] === 'large' ? large : small))
}

const [seedText = '', endText = ''] = (process.env['TEST_SEED'] ?? '').split('@')

/** The seed of this run's random choices; TEST_SEED repeats a run. */
export const testSeed = Number(seedText || Math.floor(Math.random() * 2 ** 31))

/** The minute after `@` in TEST_SEED, at which generated events end; null if there is none. */
export const endMinute = endText === '' ? null : Number(endText)
