import type { Server } from './server.ts'
import type { History } from './money/history.ts'
import type { Million } from './ingest/million.ts'
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

/** Shared parts for the rows. Each starts on first use and stops at the end of the run. */
export interface Bench {
  readonly quick: boolean
  /** Whether rows print a profile of the time they measure. */
  readonly profile: boolean
  /** Brokers of an available Kafka, or null. */
  readonly kafka: readonly string[] | null
  /** URL of an available Redis, or null. */
  readonly redis: string | null
  /** URL of the coordinator of an available Citus cluster, or null. */
  readonly citus: string | null
  /** Program of an available Chromium, or null. */
  readonly chromium: string | null
  /** A PostgreSQL that creates migrated databases for this run. */
  server(): Promise<Server>
  /** A database in which one user has a million tickets. */
  million(): Promise<Million>
  /** A database with ten million generated tickets in a month. */
  history(): Promise<History>
  /** Runs `stop` at the end of the run, also after a failure. */
  defer(stop: () => Promise<void>): void
  say(line: string): void
}

export type Row = (bench: Bench) => Promise<Finding[]>

export function isMet({ value, target }: Finding): boolean {
  if (target === null) return true
  return 'atLeast' in target ? value >= target.atLeast : value <= target.atMost
}
