import { type Counter, Registry, collectDefaultMetrics } from 'prom-client'

export type Metrics = Registry

/** One registry per process: base units, route templates, no ids in labels. */
export function createMetrics(process: string): Metrics {
  const registry = new Registry()
  registry.setDefaultLabels({ process })
  collectDefaultMetrics({ register: registry })
  return registry
}

/**
 * Returns a function that reads once for all metrics that are collected at the same time; null if
 * the read fails.
 */
export function shareReads<T>(read: () => Promise<T>): () => Promise<T | null> {
  let reading: Promise<T | null> | null = null
  return () =>
    (reading ??= read()
      .catch(() => null)
      .finally(() => {
        reading = null
      }))
}

/**
 * Starts the series of every combination of label values at 0. `increase` ignores the value with
 * which a series begins, so an alert would miss the first failure of a series that begins with it.
 */
export function startAtZero<Label extends string>(
  counter: Counter<Label>,
  values: Readonly<Record<Label, readonly string[]>>,
): void {
  let combinations: Partial<Record<Label, string>>[] = [{}]
  for (const label in values)
    combinations = combinations.flatMap((labels) =>
      values[label].map((value) => ({ ...labels, [label]: value })),
    )
  for (const labels of combinations) counter.inc(labels, 0)
}
