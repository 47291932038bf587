import { DomainError } from '../../proto/errors.ts'
import type { Cards } from '../plans/subscriptions/ports.ts'
import type { AppId } from '../platform/ids.ts'

/** State of the connection between an app's own account and the payment processor. */
export interface Connection {
  /** `pending`: the account exists but may not take payments yet. */
  readonly status: 'disconnected' | 'pending' | 'connected'
  readonly connectedAt: Date | null
}

/**
 * The payment processor. Every function returns the current state. If the state is unknown it
 * throws UNAVAILABLE, so that callers never take it for zero or false.
 */
export interface PaymentProcessor extends Cards {
  readonly connectionOf: (app: AppId) => Promise<Connection>
  /** Whether the app's owner is on a paid plan and has a card that can be charged. */
  readonly canChargeOwner: (app: AppId) => Promise<boolean>
  /** Starts connecting the app's account. Returns the address for the owner. */
  readonly connect: (app: AppId) => Promise<{ readonly url: string }>
  /** Ends the connection, if it exists. */
  readonly disconnect: (app: AppId) => Promise<void>
}

/** Stands in for a missing processor: nothing is connected and nothing can be. */
export const unconnectedProcessor: PaymentProcessor = {
  connectionOf: async () => ({ status: 'disconnected', connectedAt: null }),
  canChargeOwner: async () => false,
  connect: async () => {
    throw new DomainError(
      'PROCESSOR_NOT_CONFIGURED',
      'this deployment has no payment processor, so no account can be connected',
    )
  },
  disconnect: async () => {},
  askForCard: async () => {
    throw new DomainError(
      'PROCESSOR_NOT_CONNECTED',
      'this plan needs a payment method, but no payment processor is connected',
    )
  },
}
