import { DomainError } from '../../../../proto/errors.ts'
import type { PaymentProcessor } from '../port.ts'
import { createAccounts, createOnboarding } from './accounts.ts'
import { createCheckouts, createPayPage } from './checkouts.ts'
import { createCustomerPage, createPayments } from './payments.ts'
import { createPayouts } from './payouts.ts'
import { type SimulatedDeps, createWrites } from './writes.ts'

/**
 * A payment processor that moves no money. It behaves like a real one, with accounts, idempotency
 * keys and events, and keeps its state in the database, so that several cores share it. People pay
 * and complete accounts on pages of the gateway.
 */
export function createSimulatedProcessor(deps: SimulatedDeps) {
  const writes = createWrites(deps)
  const processor: PaymentProcessor = {
    kind: 'simulated',
    planes: ['live', 'test'],
    ...createAccounts(deps, writes),
    ...createPayments(deps, writes),
    ...createCheckouts(deps, writes),
    ...createPayouts(deps),
    verifyEvent: () => {
      throw new DomainError('SIGNATURE_INVALID', 'the simulated processor sends no webhooks')
    },
  }
  return {
    processor,
    pages: {
      checkouts: createPayPage(deps, writes),
      onboarding: createOnboarding(deps, writes),
      customers: createCustomerPage(writes),
    },
    upkeep: writes.upkeep,
  }
}

export type SimulatedProcessor = ReturnType<typeof createSimulatedProcessor>
