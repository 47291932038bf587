import type { UserId } from '../../shared/ids.ts'

/** The backend's meters (docs/openmeter.md), and a user's name there. */

export const eventType = 'create_signed_ticket'
/** The backend detects repeats by this and the event's id. */
export const eventSource = 'go-livepeer-remote-signer'

export const meterNames = [
  'network_fee_usd_micros',
  'billable_usd_micros',
  'signed_ticket_count',
  'fee_wei',
  'billable_secs',
  'network_fee_usd_micros_by_manifest',
] as const
export type MeterName = (typeof meterNames)[number]

export const dimensions = [
  'client_id',
  'external_user_id',
  'model_id',
  'pipeline',
  'manifest_id',
] as const
export type Dimension = (typeof dimensions)[number]

export interface Meter {
  readonly key: MeterName
  readonly name: string
  /** The member of an event's data to sum; null counts events. */
  readonly sums: string | null
  readonly dimensions: readonly Dimension[]
}

const usual: readonly Dimension[] = ['client_id', 'external_user_id', 'model_id', 'pipeline']
const withManifest: readonly Dimension[] = [...usual, 'manifest_id']

export const meters: readonly Meter[] = [
  {
    key: 'network_fee_usd_micros',
    name: 'Network fee, USD micros',
    sums: 'network_fee_usd_micros',
    dimensions: usual,
  },
  {
    key: 'billable_usd_micros',
    name: 'Billable, USD micros',
    sums: 'billable_usd_micros',
    dimensions: usual,
  },
  { key: 'signed_ticket_count', name: 'Signed tickets', sums: null, dimensions: usual },
  { key: 'fee_wei', name: 'Network fee, wei', sums: 'fee_wei', dimensions: withManifest },
  {
    key: 'billable_secs',
    name: 'Billable seconds',
    sums: 'billable_secs',
    dimensions: withManifest,
  },
  {
    key: 'network_fee_usd_micros_by_manifest',
    name: 'Network fee by manifest, USD micros',
    sums: 'network_fee_usd_micros',
    dimensions: withManifest,
  },
]

/** The feature to which the backend's entitlements and credits attach. */
export const feature = {
  key: 'network_spend',
  name: 'Network spend',
  meter: 'network_fee_usd_micros',
} as const

/**
 * The feature of v1's credits: that API rejects grants on a subscription's entitlement, and a
 * plan's feature has one.
 */
export const creditFeature = { key: 'network_credit', name: 'Network credit' } as const

/**
 * Returns the name under which a user's usage is sent, queried and billed: both customer key and
 * event subject. It is opaque and does not depend on the integrator's id, so it never changes.
 */
export const customerKey = (user: UserId): string => `eu_${user}`

export const toPath = (member: string): string => `$.${member}`
