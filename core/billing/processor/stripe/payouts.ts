import type { Balance, PaymentProcessor, Payout } from '../port.ts'
import { type StripeClient, expectObject } from './client.ts'
import { isMissing, unclearAnswer } from './errors.ts'

const states: readonly string[] = ['pending', 'in_transit', 'paid', 'failed', 'canceled']

const isState = (text: string): text is Payout['state'] => states.includes(text)

/** What Stripe holds for an account, and what it pays to the owner's bank. */
export const createPayouts = ({
  request,
}: StripeClient): Pick<PaymentProcessor, 'readBalance' | 'listPayouts'> => ({
  readBalance: (at) =>
    request(at, async (stripe, options) => {
      const { available, pending } = expectObject(
        await stripe.balance.retrieve({}, options),
        'balance',
      )
      const currencies = new Set([...available, ...pending].map(({ currency }) => currency))
      return [...currencies].map((currency): Balance => ({
        currency,
        decimals: decimalsOf(currency),
        available: sumOf(available, currency),
        pending: sumOf(pending, currency),
      }))
    }),

  listPayouts: (at, { limit, after }) =>
    request(
      at,
      async (stripe, options) => {
        const params = { limit, ...(after === null ? {} : { starting_after: after }) }
        const page = expectObject(await stripe.payouts.list(params, options), 'list')
        return { payouts: page.data.map(parsePayout), hasMore: page.has_more }
      },
      { recover: (error) => (after !== null && isMissing(error) ? null : undefined) },
    ),
})

interface Amount {
  readonly amount: number
  readonly currency: string
}

const sumOf = (amounts: readonly Amount[], currency: string): bigint =>
  amounts.reduce((sum, one) => (one.currency === currency ? sum + BigInt(one.amount) : sum), 0n)

interface StripePayout extends Amount {
  readonly id: string
  readonly object: 'payout'
  readonly status: string
  readonly arrival_date: number
  readonly created: number
  readonly failure_code: string | null
}

function parsePayout(payout: StripePayout): Payout {
  const { id, amount, currency, status, ...rest } = expectObject(payout, 'payout')
  if (!isState(status)) throw unclearAnswer(new Error('a payout has an unknown status'))
  return {
    id,
    amount: BigInt(amount),
    currency,
    decimals: decimalsOf(currency),
    state: status,
    arrivesAt: new Date(rest.arrival_date * 1000),
    createdAt: new Date(rest.created * 1000),
    failure: rest.failure_code ?? null,
  }
}

/** Currencies that Stripe counts in other units than hundredths (docs.stripe.com/currencies). */
const withoutDecimals = 'bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf'.split(' ')
const withThreeDecimals = ['bhd', 'jod', 'kwd', 'omr', 'tnd']

function decimalsOf(currency: string): number {
  if (withoutDecimals.includes(currency)) return 0
  return withThreeDecimals.includes(currency) ? 3 : 2
}
