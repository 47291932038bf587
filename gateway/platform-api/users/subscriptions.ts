import { Type } from 'typebox'
import { Scope } from '../../../proto/scopes.ts'
import type {
  SubscribedPlan,
  SubscriptionChange as ChangeMessage,
  SubscriptionItem,
  SubscriptionState,
} from '../../../proto/gen/es/tollgate/plans/v1/subscriptions_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, post } from '../../http/endpoint.ts'
import { IdempotencyHeader, addSchemas, asDocumented, named, ref } from '../../http/schemas.ts'
import {
  AppParams,
  Instant,
  Micros,
  UserParams,
  nullable,
  oneOf,
  pageQuery,
  required,
  text,
} from '../schemas.ts'

const url = '/api/v1/apps/:clientId/users/:externalUserId/subscription'
const tags = ['plans']
const reading = { kind: 'm2m_or_member', scope: Scope.usersRead } as const
const writing = { kind: 'm2m_or_editor', scope: Scope.usersWrite } as const

const timings = ['immediate', 'next_billing_cycle'] as const
const planTypes = ['free', 'subscription', 'usage'] as const
const planStatuses = ['active', 'inactive', 'missing'] as const
const itemStatuses = ['active', 'past_due', 'canceled', 'scheduled', 'inactive'] as const

const nullableObject = <T extends object>(schema: T, description: string) =>
  Type.Unsafe<object | null>({ ...schema, nullable: true, description })

const remoteKey = nullable({
  description: "OpenMeter's key of the plan; null until OpenMeter has the plan.",
})
const notRemote = nullable({
  description: 'Always null: the id of the subscription in OpenMeter is not stored.',
})

const planReference = Type.Object({
  id: Type.String(),
  status: oneOf(planStatuses, 'missing: the plan was deleted.'),
  phaseOutAt: nullable({ format: 'date-time' }),
  replacementPlanId: nullable({}),
})

const PlanOffer = Type.Object({
  id: Type.String(),
  name: Type.String(),
  type: oneOf(planTypes, 'The paid period.'),
  includedUsage: nullableObject(
    Type.Object({
      usdMicros: Micros('Usage that the plan includes in a period.'),
      usd: Type.String(),
    }),
    'null if the plan does not set it.',
  ),
  effectiveAt: nullable({ format: 'date-time' }),
})

const PendingCancel = Type.Object({
  subscriptionId: Type.String(),
  planId: Type.String(),
  planKey: remoteKey,
  planName: Type.String(),
  effectiveAt: Instant('When the user moves to Starter.'),
})

const Subscription = Type.Object({
  id: Type.String(),
  status: oneOf(
    ['active', 'past_due', 'canceled'] as const,
    'past_due: a payment failed and is tried again. canceled: it ends with the running period.',
  ),
  planId: Type.String(),
  planName: Type.String(),
  planType: oneOf(planTypes, 'The paid period.'),
  openmeterPlanKey: remoteKey,
  currentPeriodStart: Instant('Start of the running period.'),
  currentPeriodEnd: Instant('Its last millisecond.'),
  openmeterSubscriptionId: notRemote,
  stripeCheckoutSessionId: nullable({
    description: "The payment processor's id of the checkout that led to the subscription.",
  }),
  createdAt: Instant("When the user's time on the plan began."),
  cancelledAt: nullable({ format: 'date-time' }),
})

const SubscriptionRead = named(
  Type.Object({
    externalUserId: Type.String(),
    source: oneOf(
      ['ledger', 'openmeter'] as const,
      'openmeter if that is the metering backend. In both cases the ledger decides what may be spent.',
    ),
    subscription: nullableObject(Subscription, 'null for a user without a subscription.'),
    actionRequired: nullable({ enum: ['choose_new_plan', null] }),
    plan: nullableObject(planReference, 'The plan of the subscription.'),
    pendingCancel: nullableObject(
      PendingCancel,
      'Set while the subscription ends with its period.',
    ),
    livePlan: nullableObject(PlanOffer, 'The present subscription.'),
    pendingPlan: nullableObject(PlanOffer, 'The next subscription, if a change is scheduled.'),
  }),
  'UserSubscriptionRead',
)

export const SubscriptionChange = named(
  Type.Object({
    subscriptionId: Type.String(),
    planId: Type.String({ description: 'The plan that the user is on now.' }),
    effectiveAt: nullable({ format: 'date-time', description: 'null when nothing was changed.' }),
    timing: oneOf(timings, 'When the change takes effect.'),
    checkoutUrl: Type.Optional(
      Type.String({
        format: 'uri',
        description:
          'Address at which the user must add a payment method first; the plan was not changed.',
      }),
    ),
    pendingPlan: Type.Optional(
      Type.Object({
        planId: Type.String(),
        subscriptionId: Type.String(),
        openmeterSubscriptionId: notRemote,
        effectiveAt: Instant('When it begins.'),
      }),
    ),
  }),
  'SubscriptionChange',
)

const SubscriptionHistory = named(
  Type.Object({
    externalUserId: Type.String(),
    items: Type.Array(
      Type.Object({
        id: Type.String(),
        status: oneOf(itemStatuses, 'scheduled: it has not begun; inactive: it has ended.'),
        current: Type.Boolean({ description: 'Whether this is the present subscription.' }),
        planId: Type.String(),
        planName: Type.String(),
        planKey: remoteKey,
        openmeterPlanId: remoteKey,
        activeFrom: Instant('Its start time, which may be in the future.'),
        activeTo: nullable({ format: 'date-time' }),
      }),
    ),
    nextCursor: Type.Optional(Type.String()),
  }),
  'SubscriptionHistory',
)

const changeRefuses = [
  'CONFLICT',
  'OWNER_WALLET_NOT_APP_USER',
  'NO_SUBSCRIPTION',
  'CARD_DECLINED',
  'PROCESSOR_NOT_CONNECTED',
  'PROCESSOR_UNREACHABLE',
  'PROCESSOR_REFUSED',
] as const

export const Timing = Type.Optional(oneOf(timings, 'Depends on the plans when absent.'))
const confirm = Type.Optional(Type.Boolean({ description: 'must be true' }))

/** A user's subscription: read, change, cancel, resume, and its history. */
export function subscriptionRoutes(app: App): void {
  addSchemas(app, [SubscriptionRead, SubscriptionChange, SubscriptionHistory])
  readSubscription(app)
  updateSubscription(app)
  cancelSubscription(app)
  resumeSubscription(app)
  listSubscriptions(app)
}

const readSubscription = get({
  url,
  guard: reading,
  operationId: 'getSubscription',
  summary: 'Which plan a user is on',
  description:
    "Returns the user's present subscription, its running period, and the next subscription. subscription is null for a user without one.",
  tags,
  params: UserParams,
  response: { 200: ref(SubscriptionRead) },
  self: {
    operationId: 'getSubscriptionOfMe',
    summary: 'Your plan',
    description: 'Returns your plan in the app, what it includes, and when its period ends.',
    params: AppParams,
  },
  handler: async ({ params, core }) => {
    const { state } = await core.subscriptions.getSubscription(params)
    return toRead(requireField(state, 'state'))
  },
})

const updateSubscription = post({
  url: `${url}/change`,
  guard: writing,
  refuses: changeRefuses,
  operationId: 'updateSubscription',
  summary: 'Move a user to another plan',
  description:
    "Changes the user's plan: at once for a more expensive plan or the first usage plan, otherwise when the running period ends, unless timing is set. If the plan needs a payment method and the user has none, the plan stays unchanged and the answer has the checkoutUrl: the user moves when the processor reports the payment. With a card on file, the first period is charged before the plan changes. Send an Idempotency-Key, so that a repeated request changes once.",
  tags,
  params: UserParams,
  headers: IdempotencyHeader,
  body: Type.Object({
    planId: required('An active plan of the app.'),
    timing: Timing,
    successUrl: Type.Optional(text('Address after a completed checkout.')),
    cancelUrl: Type.Optional(text('Address after an abandoned checkout.')),
  }),
  response: { 200: ref(SubscriptionChange) },
  handler: async ({ params, headers, body, core }) => {
    const { change } = await core.subscriptions.updateSubscription({
      ...params,
      ...body,
      idempotencyKey: headers['idempotency-key'],
    })
    return toChange(requireField(change, 'change'))
  },
})

// Core requires `confirm`, after it has checked the user.
const Cancellation = Type.Object({ confirm, timing: Timing })
const Resumption = Type.Object({ confirm })

const cancelSubscription = del({
  url,
  guard: writing,
  refuses: [
    'CONFIRM_REQUIRED',
    'OWNER_WALLET_NOT_APP_USER',
    'ALREADY_SCHEDULED',
    'NO_SUBSCRIPTION',
    'ALREADY_STARTER',
  ],
  operationId: 'cancelSubscription',
  summary: 'End a subscription',
  description:
    'Moves the user to Starter when the running period ends, or at once with timing immediate. It replaces a scheduled change.',
  tags,
  params: UserParams,
  body: Cancellation,
  documentedBody: asDocumented(Cancellation, { required: ['confirm'] }),
  response: { 200: ref(SubscriptionChange) },
  handler: async ({ params, body, core }) => {
    const { change } = await core.subscriptions.cancelSubscription({
      ...params,
      confirm: body.confirm === true,
      timing: body.timing,
    })
    return toChange(requireField(change, 'change'))
  },
})

const resumeSubscription = del({
  url: `${url}/pending-change`,
  guard: writing,
  refuses: [
    'CONFIRM_REQUIRED',
    'OWNER_WALLET_NOT_APP_USER',
    'NO_SUBSCRIPTION',
    'NOTHING_TO_RESUME',
  ],
  operationId: 'resumeSubscription',
  summary: 'Cancel a scheduled change or end',
  description: 'Cancels the scheduled change or end, so that the subscription continues.',
  tags,
  params: UserParams,
  body: Resumption,
  documentedBody: asDocumented(Resumption, { required: ['confirm'] }),
  response: { 200: ref(SubscriptionChange) },
  handler: async ({ params, body, core }) => {
    const { change } = await core.subscriptions.resumeSubscription({
      ...params,
      confirm: body.confirm === true,
    })
    return toChange(requireField(change, 'change'))
  },
})

const listSubscriptions = get({
  url: '/api/v1/apps/:clientId/users/:externalUserId/subscriptions',
  guard: reading,
  operationId: 'listSubscriptions',
  summary: 'All subscriptions of a user',
  description:
    "Lists the user's past, present and scheduled subscriptions, the latest first, in pages. A scheduled change is the first entry.",
  tags,
  params: UserParams,
  querystring: Type.Object(pageQuery),
  response: { 200: ref(SubscriptionHistory) },
  handler: async ({ params, query: { limit, cursor }, core }) => {
    const request = { ...params, limit: Number(limit ?? 0), cursor }
    const answer = await core.subscriptions.listSubscriptions(request)
    return { ...answer, items: answer.items.map(toItem) }
  },
})

function toRead({ externalUserId, subscription, pending, ...state }: SubscriptionState) {
  // A core of an earlier release sends no source.
  const source = state.source === 'openmeter' ? state.source : 'ledger'
  if (!subscription) return { externalUserId, source }
  const plan = requireField(subscription.plan, 'plan')
  return {
    externalUserId,
    source,
    subscription: {
      ...subscription,
      ...nameOf(plan),
      planType: plan.type,
      stripeCheckoutSessionId: subscription.checkoutSessionId,
      openmeterPlanKey: plan.openmeterPlanKey,
      currentPeriodEnd: lastMillisecond(subscription.currentPeriodEnd),
    },
    actionRequired: plan.status === 'missing' ? 'choose_new_plan' : null,
    plan,
    pendingCancel:
      pending?.reason === 'cancel'
        ? {
            ...nameOf(plan),
            subscriptionId: subscription.id,
            planKey: plan.openmeterPlanKey,
            effectiveAt: pending.effectiveAt,
          }
        : null,
    livePlan: toOffer(plan),
    pendingPlan:
      pending?.reason === 'change'
        ? { ...toOffer(requireField(pending.plan, 'plan')), effectiveAt: pending.effectiveAt }
        : null,
  }
}

const lastMillisecond = (end: string): string => new Date(Date.parse(end) - 1).toISOString()

const nameOf = (plan: SubscribedPlan) => ({ planId: plan.id, planName: plan.name })

const toOffer = (plan: SubscribedPlan) => ({
  ...plan,
  includedUsage:
    plan.includedUsdMicros === undefined
      ? null
      : { usdMicros: plan.includedUsdMicros, usd: usdText(plan.includedUsdMicros) },
})

/** Formats dollars with at least two decimals. */
function usdText(micros: string): string {
  const digits = micros.padStart(7, '0')
  const fraction = digits.slice(-6).replace(/0{1,4}$/, '')
  return `${digits.slice(0, -6)}.${fraction}`
}

export const toChange = (change: ChangeMessage) => ({ ...change, pendingPlan: change.pending })

const toItem = (item: SubscriptionItem) => ({
  ...item,
  current: item.status !== 'scheduled' && item.status !== 'inactive',
  planKey: item.openmeterPlanKey,
})
