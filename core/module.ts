import type { Service } from './rpc/serve.ts'

/**
 * A domain's interface to the rest of core. Each domain has a `module.ts` with a
 * `create<Domain>Module(platform, others)`: `platform` is shared by all domains, `others` are the
 * domain's settings and the `api` of other domains.
 */
export interface Module<Api> {
  /** Functions for modules that are created later. */
  readonly api: Api
  /** gRPC services that core serves for this domain. */
  readonly services: readonly Service[]
  readonly lifecycle?: Lifecycle
  /** Periodic work, run once a minute in this order. Several cores may run it at the same time. */
  readonly upkeep?: readonly Upkeep[]
}

export type Upkeep = () => Promise<unknown>

/** Core prepares and starts modules in order of creation, and stops them in reverse order. */
export interface Lifecycle {
  /** Runs before the port opens. If it rejects, core does not start. */
  readonly prepare?: () => Promise<unknown>
  /** Runs when the port is open, before health checks return SERVING. */
  readonly start?: () => Promise<unknown> | void
  /** Lets running work finish. Core waits only for a limited time. */
  readonly stop?: () => Promise<unknown>
  /** Whether the systems that this module depends on answer, by name. For /readyz. */
  readonly ready?: () => Promise<Readonly<Record<string, boolean>>>
}
