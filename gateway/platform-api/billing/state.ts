import { Type } from 'typebox'
import type * as pb from '../../../proto/gen/es/tollgate/billing/v1/wallet_pb.ts'
import { named, ref } from '../../http/schemas.ts'
import { Instant, Micros, nullable, oneOf, spendRefusals } from '../schemas.ts'

/** Whether a payer may spend, why not, and what happens next. */

export const BillingMoney = named(
  Type.Object(
    {
      usdMicros: Micros('The amount.'),
      usd: Type.String({ description: 'The same in dollars, with at least two decimals.' }),
      currency: oneOf(['USD'], 'Always USD.'),
    },
    { nullable: true },
  ),
  'BillingMoney',
)

export const PaymentMethod = Type.Object({
  hasDefault: Type.Unsafe<boolean | null>({
    type: 'boolean',
    nullable: true,
    description: 'Whether a card on file can be charged; null if it is unknown.',
  }),
  brand: nullable({ description: 'Such as visa.' }),
  last4: nullable({}),
})

const Money = ref(BillingMoney)

export const BillingState = named(
  Type.Object({
    asOf: Instant("By the clock of the payer's app."),
    subject: Type.Object({
      type: oneOf(['end_user', 'owner'], "Who pays: the named user, or the app's owner."),
      externalUserId: Type.String({ description: "The payer's id in its app." }),
      billingMode: oneOf(['owner_rollup', 'merchant'], "The app's billing mode."),
    }),
    status: oneOf(
      ['active', 'overage', 'at_risk', 'blocked'],
      'active: money is left. overage: something is unpaid, within the limit. at_risk: money or limit ends soon, or a payment failed. blocked: no call is allowed.',
    ),
    canSpend: Type.Boolean({ description: 'Whether a call may be allowed.' }),
    reason: nullable({
      enum: [...spendRefusals, null],
      description: 'The code with which calls are refused; null if the payer may spend.',
    }),
    funding: Type.Object({
      prepaid: Money,
      included: Money,
      includedUsage: Type.Object({
        total: Money,
        remaining: Money,
        consumed: Money,
        resetsAt: Instant('The end of the period.'),
        sourcePlan: nullable({ description: 'Name of the plan; null without a subscription.' }),
      }),
      spendable: Money,
      net: Money,
      overage: Type.Object({
        eligible: Type.Boolean({ description: 'Whether the payer may run up debt.' }),
        ceiling: Money,
        unbilledDebt: Money,
        remaining: Money,
        utilizationBps: Type.Unsafe<number | null>({
          type: 'integer',
          nullable: true,
          description: 'The used part of the ceiling in hundredths of a percent; null without one.',
        }),
        debtSource: oneOf(['gathering_invoice', 'unavailable'], 'Where the debt was read.'),
      }),
    }),
    collection: Type.Object({
      mode: oneOf(
        ['threshold', 'period', 'none'],
        'When usage is collected: at a threshold, by period, or never.',
      ),
      collector: oneOf(['app', 'platform'], 'Who gets the money.'),
      paymentMethod: PaymentMethod,
      nextAction: oneOf(
        ['none', 'awaiting_settlement', 'add_payment_method', 'add_funds'],
        'What the payer should do.',
      ),
      leadThreshold: Money,
      minimumCharge: Money,
      cycle: nullable({ description: 'daily, weekly or monthly; null without a subscription.' }),
      collectionInterval: nullable({
        description: 'The cycle by which usage is collected; null if no cycle collects it.',
      }),
      lastRaisedAt: nullable({ format: 'date-time', description: 'The newest invoice.' }),
      nextRaiseEligibleAt: nullable({
        format: 'date-time',
        description: 'When the next invoice is raised; null if none is planned.',
      }),
    }),
    explain: Type.Object({
      headline: Type.String({ description: 'For people.' }),
      detail: Type.String({ description: 'What happened, and what the payer can do.' }),
      docsUrl: Type.String({ format: 'uri' }),
    }),
  }),
  'BillingState',
)

/** Renders a payment method. Absent is unknown. */
export const toPaymentMethod = (card: pb.WalletCard | undefined) => ({
  hasDefault: card?.hasDefault ?? null,
  brand: card?.brand ?? null,
  last4: card?.last4 ?? null,
})

/** Renders a state; absent members are null. */
export const toBillingState = (state: pb.BillingState | undefined) => ({
  asOf: state?.asOf,
  subject: state?.subject,
  status: state?.status,
  canSpend: state?.canSpend,
  reason: state?.reason ?? null,
  funding: toFunding(state?.funding),
  collection: toCollection(state?.collection),
  explain: state?.explain,
})

const toFunding = (funding: pb.BillingFunding | undefined) => ({
  ...funding,
  included: funding?.includedUsage?.remaining ?? null,
  includedUsage: {
    ...funding?.includedUsage,
    sourcePlan: funding?.includedUsage?.sourcePlan ?? null,
  },
  overage: toOverage(funding?.overage),
})

const toOverage = (overage: pb.BillingOverage | undefined) => ({
  ...overage,
  ceiling: overage?.ceiling ?? null,
  unbilledDebt: overage?.unbilledDebt ?? null,
  remaining: overage?.remaining ?? null,
  utilizationBps: overage?.utilizationBps ?? null,
})

const toCollection = (collection: pb.BillingCollection | undefined) => ({
  ...collection,
  cycle: collection?.cycle ?? null,
  collectionInterval: collection?.collectionInterval ?? null,
  paymentMethod: toPaymentMethod(collection?.paymentMethod),
  leadThreshold: collection?.leadThreshold ?? null,
  lastRaisedAt: collection?.lastRaisedAt ?? null,
  nextRaiseEligibleAt: collection?.nextRaiseEligibleAt ?? null,
})
