/** A model of a pipeline; `*` is every model. */
export interface Capability {
  readonly pipeline: string
  readonly modelId: string
}

export const sortOrders = ['latency', 'price', 'swapRate', 'avail'] as const

/** How orchestrators are chosen: the best `topN` by `sortBy` of those that pass the filters. */
export interface Policy {
  readonly topN?: number
  readonly sortBy?: (typeof sortOrders)[number]
  readonly filters?: Readonly<Record<string, number>>
}

export interface ProfileCapability extends Capability {
  readonly discoveryPolicy: Policy | null
}

export interface Profile {
  readonly id: string
  readonly name: string
  readonly policy: Policy
  readonly capabilities: readonly ProfileCapability[]
  readonly createdAt: Date
  readonly updatedAt: Date
}

/** Capabilities that an app does not offer; nothing excluded means no restriction. */
export interface Manifest {
  readonly excluded: readonly Capability[]
  readonly version: string
}
