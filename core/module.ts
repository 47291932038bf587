import type { Service } from './rpc/serve.ts'

/**
 * What a domain offers to the rest of core. Each has a `module.ts` with a `create<Domain>Module(platform, others)`,
 * where `platform` is what all domains share and `others` are its settings and the `api` of other domains.
 */
export interface Module<Api> {
  /** Functions for the domains that are made after this one. */
  readonly api: Api
  /** The gRPC services that core serves for this domain. */
  readonly services: readonly Service[]
  readonly lifecycle?: Lifecycle
  /** Periodic work, run once a minute in this order. Any number of cores may run it at the same time. */
  readonly upkeep?: readonly Upkeep[]
}

export type Upkeep = () => Promise<unknown>

/** Core prepares and starts the modules in the order of their creation, and stops them in reverse. */
export interface Lifecycle {
  /** Runs before the port opens. Core does not start when it rejects. */
  readonly prepare?: () => Promise<unknown>
  /** Runs when the port is open, before health checks answer SERVING. */
  readonly start?: () => Promise<unknown> | void
  /** Lets running work finish. Core waits for a bounded time only. */
  readonly stop?: () => Promise<unknown>
  /** Whether the systems behind this module answer, by name: for /readyz. */
  readonly ready?: () => Promise<Readonly<Record<string, boolean>>>
}
