import { DomainError } from '../../proto/errors.ts'
import type { Cards } from '../plans/subscriptions/ports.ts'
import type { AppId } from '../platform/ids.ts'

/** Whether an app's own account at the payment processor is connected, and may take payments. */
export interface Connection {
  /** `pending`: there is an account that may not take payments yet. */
  readonly status: 'disconnected' | 'pending' | 'connected'
  readonly connectedAt: Date | null
}

/**
 * Who takes the money. Every function says what is so now; one that does not know throws UNAVAILABLE, so that what is
 * unknown never reads as zero or no.
 */
export interface PaymentProcessor extends Cards {
  readonly connectionOf: (app: AppId) => Promise<Connection>
  /** Whether the owner of the app is on a paid plan with a card that can be charged. */
  readonly canChargeOwner: (app: AppId) => Promise<boolean>
  /** Begins the connection of the app's account; the address to send the owner to. */
  readonly connect: (app: AppId) => Promise<{ readonly url: string }>
  /** Ends the connection. Without one it changes nothing. */
  readonly disconnect: (app: AppId) => Promise<void>
}

/** The processor of a deployment that has none: nothing is connected, and nothing can be. */
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
      'this plan needs a payment method, and no payment processor is connected that could take one',
    )
  },
}
