import type {
  BillingMoney,
  BillingState,
  WalletCard,
} from '../../../../proto/gen/ts-proto/tollgate/billing/v1/wallet.ts'
import { action, createCommand } from '../../command.ts'
import { dollars } from '../../money.ts'
import { app, argument, integer, required, text } from '../../options.ts'
import { properties, table } from '../../output.ts'

const payer = {
  clientId: app,
  externalUserId: text('USER', {
    flag: 'user',
    meaning: 'The user who pays; required in billing mode merchant, otherwise ignored.',
  }),
}

const show = action({
  text: 'Prints the balance and the card of a payer, whether it may spend, what is unpaid, and when plans that are paid by use charge it.',
  options: payer,
  read: (core, request) => core.wallets.getWallet(request),
  lines: ({ balance, card, billingMode, billingState, payer: name, payPerUsePlans }) => [
    ...properties([
      ['payer', name],
      ['billing mode', billingMode],
      ['balance', balance === undefined ? 'unknown' : `${balance.usd} USD`],
      ['card', cardText(card)],
      ...(billingState ? stateRows(billingState) : []),
    ]),
    ...(billingState?.explain
      ? [`${billingState.explain.headline}. ${billingState.explain.detail}`]
      : []),
    ...payPerUsePlans.map(({ planName, resolvedBehavior }) => `${planName}: ${resolvedBehavior}`),
  ],
})

const stateRows = ({
  status,
  canSpend,
  reason,
  funding,
  collection,
}: BillingState): (readonly [string, string | undefined])[] => [
  ['status', status],
  ['may spend', canSpend ? 'yes' : `no: ${reason ?? 'unknown'}`],
  ['spendable', usd(funding?.spendable)],
  ['unpaid', usd(funding?.overage?.unbilledDebt)],
  ['limit of unpaid', usd(funding?.overage?.ceiling)],
  ['last invoice', collection?.lastRaisedAt ?? 'none'],
  ['next', collection?.nextAction],
]

function cardText(card: WalletCard | undefined): string {
  if (card === undefined) return 'unknown'
  return card.hasDefault ? `${card.brand} ending in ${card.last4}` : 'none'
}

const usd = (money: BillingMoney | undefined): string =>
  money === undefined ? 'none' : `${money.usd} USD`

const transactions = action({
  text: 'Lists the transactions of a payer with running balances, the newest first.',
  options: {
    ...payer,
    externalUserId: text('USER', {
      flag: 'user',
      meaning: 'The user; required in billing mode merchant and with --payer user.',
    }),
    payer: text('PAYER', { meaning: 'user: the named user, also while the owner pays.' }),
    limit: integer('N', { from: 1, to: 100, fallback: 25 }),
    cursor: text('CURSOR'),
  },
  read: (core, request) => core.wallets.listWalletTransactions(request),
  lines: ({ items }) =>
    table(
      items,
      [
        ['date', ({ date }) => date.slice(0, 19)],
        ['USD', ({ amountUsdMicros: micros }) => dollars({ micros })],
        ['change', ({ creditDeltaUsdMicros: micros }) => dollars({ micros })],
        ['balance', ({ balanceUsdMicros: micros }) => dollars({ micros })],
        'type',
        'description',
      ],
      'no transactions',
    ),
})

const payments = action({
  text: 'Lists the payments of an app, the newest first, with what was refunded and disputed.',
  options: {
    clientId: app,
    externalUserId: text('USER', { flag: 'user', meaning: 'Only the payments of this user.' }),
    state: text('STATE', {
      meaning: 'Only payments in this state: received, partly_refunded, refunded or disputed.',
    }),
    since: text('TIME', { meaning: 'Only payments at or after this day or instant.' }),
    until: text('TIME', { meaning: 'Only payments before this day or instant.' }),
    limit: integer('N', { from: 1, to: 1_000, fallback: 100 }),
    cursor: text('CURSOR'),
  },
  read: (core, request) => core.payments.listPayments(request),
  lines: ({ payments: rows }) =>
    table(
      rows,
      [
        ['date', ({ createdAt }) => createdAt.slice(0, 19)],
        ['USD', ({ amountUsd }) => amountUsd],
        ['refunded', ({ refundedUsd }) => refundedUsd],
        ['disputed', ({ disputedUsd }) => disputedUsd],
        'purpose',
        ['user', ({ externalUserId }) => externalUserId],
        'plane',
        'id',
      ],
      'no payments',
    ),
})

const refund = action({
  text: 'Refunds a payment at the processor, or a part of it. What the payer has spent of it becomes overage.',
  options: {
    clientId: app,
    paymentId: argument('PAYMENT'),
    amountUsd: text('USD', { flag: 'usd', meaning: 'Dollars to refund; by default what is left.' }),
    idempotencyKey: required('TEXT', {
      flag: 'key',
      meaning: 'An idempotency key: a repeat with the same key refunds once.',
    }),
  },
  change: (core, request) => core.payments.refundPayment(request),
  lines: ({ paymentId, refundedUsd }) => [`${paymentId}  ${refundedUsd} USD refunded`],
})

export const wallet = createCommand('wallet', {
  summary: 'shows what payers have, and refunds payments',
  examples: [
    './tollgate wallet show --app app_0123456789abcdef01234567 --user ada',
    './tollgate wallet payments --app app_0123456789abcdef01234567',
    './tollgate wallet refund 0199b0c2-7c1e-7a42-9f51-d4f1a1b2c3d4 --app app_0123456789abcdef01234567 --key refund-17',
  ],
  actions: { show, transactions, payments, refund },
})
