import type { Server } from './server.ts'
import type { History } from './history.ts'
import type { Million } from './million.ts'
import type { Spread } from './stats.ts'

/** One line of the final table. */
export interface Finding {
  readonly name: string
  readonly value: number
  readonly unit: '' | 's' | 'ms' | 'us' | 'MB'
  readonly spread: Spread | null
  readonly target: { readonly atLeast: number } | { readonly atMost: number } | null
  /** The figures behind it, for people. */
  readonly detail: string
}

/** What a row may use. Parts start when the first row asks for them and stop with the run. */
export interface Bench {
  readonly quick: boolean
  /** Rows that can print where the time goes. */
  readonly profile: boolean
  /** The brokers of a Kafka to run on; null where there is none. */
  readonly kafka: readonly string[] | null
  /** A Redis to run on; null where there is none. */
  readonly redis: string | null
  /** A PostgreSQL that hands out migrated databases of the run's own. */
  server(): Promise<Server>
  /** A database with a million tickets behind one user, and what collecting them took. */
  million(): Promise<Million>
  /** A database with ten million generated tickets in a month. */
  history(): Promise<History>
  /** Runs `stop` when the run ends, however it ends. */
  defer(stop: () => Promise<void>): void
  say(line: string): void
}

export type Row = (bench: Bench) => Promise<Finding[]>

export function isMet({ value, target }: Finding): boolean {
  if (target === null) return true
  return 'atLeast' in target ? value >= target.atLeast : value <= target.atMost
}
