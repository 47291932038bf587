import { DomainError } from '../../../../proto/errors.ts'
import type { AccountState, PaymentProcessor } from '../port.ts'
import { type StripeClient, expectObject } from './client.ts'
import { isAccountGone, isMissing } from './errors.ts'

/**
 * What `type: 'standard'` stands for, in the properties that replace account types: the owner has
 * Stripe's own dashboard, pays Stripe's fees, and Stripe, not the platform, asks for documents and
 * bears losses.
 */
const controller = {
  stripe_dashboard: { type: 'full' },
  fees: { payer: 'account' },
  losses: { payments: 'stripe' },
  requirement_collection: 'stripe',
} as const

type Accounts = Pick<PaymentProcessor, 'createAccount' | 'createOnboardingUrl' | 'readAccount'>

export const createAccounts = ({ request }: StripeClient): Accounts => ({
  createAccount: (plane, { reference, email }, key) =>
    request(
      { plane, account: null },
      async (stripe, options) => {
        const params = {
          controller,
          ...(email === null ? {} : { email }),
          metadata: { reference },
        }
        const { id } = expectObject(await stripe.accounts.create(params, options), 'account')
        return { id }
      },
      { key },
    ),

  createOnboardingUrl: async ({ plane, account }, { returnUrl, refreshUrl }) => {
    if (account === null)
      throw new DomainError('PROCESSOR_REFUSED', "the platform's own account is not onboarded here")
    return request({ plane, account: null }, async (stripe, options) => {
      const link = await stripe.accountLinks.create(
        {
          account,
          type: 'account_onboarding',
          return_url: returnUrl,
          refresh_url: refreshUrl,
        },
        options,
      )
      return { url: expectObject(link, 'account_link').url }
    })
  },

  readAccount: ({ plane, account }) =>
    request<AccountState | null>(
      { plane, account: null },
      async (stripe, options) => {
        const state = expectObject(
          await (account === null
            ? stripe.accounts.retrieveCurrent({}, options)
            : stripe.accounts.retrieve(account, {}, options)),
          'account',
        )
        return {
          chargesEnabled: state.charges_enabled === true,
          payoutsEnabled: state.payouts_enabled === true,
          detailsSubmitted: state.details_submitted === true,
        }
      },
      { recover: (error) => (isMissing(error) || isAccountGone(error) ? null : undefined) },
    ),
})
