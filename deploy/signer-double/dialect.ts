/** The signers with this protocol (docs/signer-protocol.md), and their differences. */
export type Mode = 'go-livepeer' | 'go-v0.8.11' | 'node'

export type Dialect = Readonly<{
  /** Whether the state has App and Type, the event has app, and maxPrice is read. */
  knowsApp: boolean
  /** Whether the state's LastUpdate is read from the clock after the event's current_time. */
  stateTimeLags: boolean
  costField: 'cost' | 'cost_per_pixel'
  types: readonly string[]
  followRedirects: boolean
  /** Status for the gateway when the webhook fails or its answer is invalid. */
  webhookFailure: number
  /** Status for the gateway when the identity of a session changes. */
  identityChanged: number
  /** Whether a permission is still valid in the second of its expiry. */
  expiryInclusive: boolean
  idBytes: number
  /**
   * The successor signer: authorization bound to URL and headers, price ceiling stored with it,
   * flat error envelope, extra members in state and event.
   */
  successor: boolean
}>

const GO_LIVEPEER: Dialect = {
  knowsApp: true,
  stateTimeLags: false,
  costField: 'cost',
  types: ['live', 'lv2v', 'fixed', ''],
  followRedirects: true,
  webhookFailure: 500,
  identityChanged: 500,
  expiryInclusive: true,
  idBytes: 4,
  successor: false,
}

export const DIALECTS: Readonly<Record<Mode, Dialect>> = {
  'go-livepeer': GO_LIVEPEER,
  'go-v0.8.11': {
    ...GO_LIVEPEER,
    knowsApp: false,
    stateTimeLags: true,
    costField: 'cost_per_pixel',
    types: ['lv2v', ''],
  },
  node: {
    ...GO_LIVEPEER,
    followRedirects: false,
    webhookFailure: 502,
    identityChanged: 403,
    expiryInclusive: false,
    idBytes: 16,
    successor: true,
  },
}

export const MODES: readonly string[] = Object.keys(DIALECTS)

export const isMode = (text: string): text is Mode => MODES.includes(text)
