/** What was charged in each of the last sixty seconds. */

export interface Second {
  /** Unix seconds, by the clock of this browser. */
  readonly at: number
  readonly tickets: number
  readonly attos: bigint
}

export const seconds = 60

/** Adds up both, by second. Keeps at most sixty, the newest last. */
export function addSeconds(minute: readonly Second[], added: readonly Second[]): Second[] {
  const sums = new Map(minute.map((second) => [second.at, second]))
  for (const { at, tickets, attos } of added) {
    const sum = sums.get(at)
    sums.set(at, {
      at,
      tickets: (sum?.tickets ?? 0) + tickets,
      attos: (sum?.attos ?? 0n) + attos,
    })
  }
  return [...sums.values()].sort((a, b) => a.at - b.at).slice(-seconds)
}

/** Returns the seconds that are within the last sixty at `now`, and their sums. */
export function sumMinute(minute: readonly Second[], now: number) {
  const recent = minute.filter(({ at }) => at > now - seconds && at <= now)
  return {
    recent,
    tickets: recent.reduce((sum, { tickets }) => sum + tickets, 0),
    attos: recent.reduce((sum, { attos }) => sum + attos, 0n),
  }
}
