import { DomainError } from '../../../../proto/errors.ts'
import type * as pb from '../../../../proto/gen/ts-proto/tollgate/billing/v1/simulated.ts'
import { gatewayCaller } from '../../../rpc/guards.ts'
import { type Handlers, rpc } from '../../../rpc/serve.ts'
import { type OnboardingAction, onboardingActions } from './accounts.ts'
import { parseTestCard, testCards } from './cards.ts'
import type { SimulatedProcessor } from './simulated.ts'

/** The pages of the simulated processor, for the gateway. The ids in the requests are the credentials. */
export function createSimulatedRpc({ checkouts, onboarding }: SimulatedProcessor['pages']) {
  const simulatedProcessorService: Handlers<pb.SimulatedProcessorServiceServer> = {
    getSimulatedCheckout: rpc(
      gatewayCaller(),
      async ({ checkoutId }: pb.GetSimulatedCheckoutRequest) => {
        const { amount, ...page } = await checkouts.find(checkoutId)
        return {
          mode: page.mode,
          state: page.state,
          plane: page.plane,
          description: page.description,
          isConfirming: page.isConfirming,
          successUrl: page.successUrl,
          cancelUrl: page.cancelUrl,
          amountUsdCents: amount === null ? undefined : String(amount),
        }
      },
    ),
    paySimulatedCheckout: rpc(
      gatewayCaller(),
      async ({ checkoutId, card }: pb.PaySimulatedCheckoutRequest) => {
        const { state, failure } = await checkouts.pay(checkoutId, requireCard(card))
        return { state, failure: failure ?? undefined }
      },
    ),
    confirmSimulatedCheckout: rpc(
      gatewayCaller(),
      async ({ checkoutId, isConfirmed }: pb.ConfirmSimulatedCheckoutRequest) => {
        const { state } = await checkouts.confirm(checkoutId, isConfirmed)
        return { state }
      },
    ),
    getSimulatedAccount: rpc(
      gatewayCaller(),
      async ({ accountId, linkId }: pb.GetSimulatedAccountRequest) => {
        const { account, ...link } = await onboarding.find(accountId, linkId)
        const { email, ...state } = account.data
        return { ...state, email: email ?? undefined, plane: account.at.plane, ...link }
      },
    ),
    updateSimulatedAccount: rpc(
      gatewayCaller(),
      async ({ accountId, linkId, action }: pb.UpdateSimulatedAccountRequest) =>
        onboarding.act(accountId, linkId, requireAction(action)),
    ),
  }
  return { simulatedProcessorService }
}

function requireCard(text: string) {
  const card = parseTestCard(text)
  if (card !== null) return card
  const names = Object.keys(testCards).join(', ')
  throw new DomainError('REQUEST_INVALID', `card must be one of: ${names}`)
}

function requireAction(text: string): OnboardingAction {
  const action = onboardingActions.find((known) => known === text)
  if (action !== undefined) return action
  const names = onboardingActions.join(', ')
  throw new DomainError('REQUEST_INVALID', `action must be one of: ${names}`)
}
