import type { EnvReader } from '../lib/env.ts'
import { type UsdMicros, usdMicros } from '../lib/money.ts'

export interface EscrowConfig {
  /** How long a sidecar may spend a lease. */
  readonly leaseSeconds: number
  /** How far the event stream may lag. */
  readonly eventLagSeconds: number
  /** How long an authorisation stays held after its sidecar has stopped allowing calls. */
  readonly holdMaxSeconds: number
  readonly lostTickets: 'write_off' | 'charge'
  /** Limit for the unspent credit that an app gave its users through the API. */
  readonly manualCreditMax: UsdMicros
}

/** Core keeps a lease for some seconds after its end (`graceSeconds`). */
const marginSeconds = 10

/** Returns how long it takes at most, in seconds, from a lease until the tickets of its calls are booked. */
export const longestBooking = ({
  leaseSeconds,
  eventLagSeconds,
}: Pick<EscrowConfig, 'leaseSeconds' | 'eventLagSeconds'>): number =>
  leaseSeconds + marginSeconds + eventLagSeconds

/** Declares and reads the escrow settings. */
export const readEscrowConfig = (env: EnvReader): EscrowConfig => ({
  leaseSeconds: env.integer('LEASE_SECONDS', {
    fallback: '30',
    min: 5,
    max: 300,
    meaning:
      'How long a sidecar may spend the money that core lent to it; after a crash the unspent part stays held this long.',
  }),
  eventLagSeconds: env.integer('EVENT_LAG_SECONDS', {
    fallback: '20',
    min: 1,
    max: 3_600,
    meaning:
      "How far a call may be behind its sidecar's stream of events before its ticket counts as missing.",
  }),
  holdMaxSeconds: env.integer('HOLD_MAX_SECONDS', {
    fallback: '900',
    min: 30,
    max: 86_400,
    meaning:
      'How long the money of a call without a ticket stays held if its sidecar allows no further calls.',
  }),
  ...readQuotas(env),
  lostTickets: env.choice('LOST_TICKETS', {
    choices: ['write_off', 'charge'],
    fallback: 'write_off',
    meaning:
      'Treatment of a signed call whose ticket is lost: write_off releases its money, charge books its bound as an estimate.',
  }),
})

const readQuotas = (env: EnvReader): Pick<EscrowConfig, 'manualCreditMax'> => ({
  manualCreditMax: usdMicros(
    BigInt(
      env.integer('QUOTA_MANUAL_CREDIT_USD', {
        fallback: '1000',
        min: 0,
        max: 1_000_000_000,
        meaning:
          'Most credit in whole USD that an app may have given and its users have not spent; ./tollgate quota changes it for an app.',
      }),
    ) * 1_000_000n,
  ),
})
