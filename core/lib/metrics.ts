import { Registry, collectDefaultMetrics } from 'prom-client'

export type Metrics = Registry

/** One registry per process: base units, route templates, no ids in labels. */
export function createMetrics(process: string): Metrics {
  const registry = new Registry()
  registry.setDefaultLabels({ process })
  collectDefaultMetrics({ register: registry })
  return registry
}
