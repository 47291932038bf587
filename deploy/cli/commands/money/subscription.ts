import type {
  SubscriptionChange,
  SubscriptionState,
} from '../../../../proto/gen/ts-proto/tollgate/plans/v1/subscriptions.ts'
import { action, createCommand } from '../../command.ts'
import { appUser, idempotencyKey, required, text } from '../../options.ts'
import { table } from '../../output.ts'

const timing = text('WHEN', {
  meaning:
    'immediate or next_billing_cycle. By default a change to a more expensive plan, or from a free plan to the first usage plan, begins at once.',
})

const show = action({
  text: "Prints a user's plan, the running period, the next plan, and the last twenty subscriptions.",
  options: appUser,
  read: async ({ subscriptions }, request) => {
    const [{ state }, { items }] = await Promise.all([
      subscriptions.getSubscription(request),
      subscriptions.listSubscriptions({ ...request, limit: 20 }),
    ])
    return { state, items }
  },
  json: ({ state, items }) => ({ ...state, items }),
  lines: ({ state, items }) => [
    ...linesOfState(state),
    ...(items.length === 0
      ? []
      : table(items, [
          ['from', 'activeFrom'],
          ['to', 'activeTo'],
          ['state', 'status'],
          ['plan', 'planName'],
          'id',
        ])),
  ],
})

const change = action({
  text:
    "Moves a user to another active plan. The command checks neither the user's payment method nor the " +
    'activation gate: the operator settles both by hand.',
  options: {
    ...appUser,
    planId: required('PLAN_ID', { flag: 'plan' }),
    timing,
    idempotencyKey: idempotencyKey('makes no second change'),
  },
  change: async (core, request) => (await core.subscriptions.updateSubscription(request)).change,
  lines: linesOfChange,
})

const checkout = action({
  text:
    'Opens the pay page for a plan and prints its address. The user moves to the plan when the processor reports the ' +
    'payment.',
  options: {
    ...appUser,
    planId: required('PLAN_ID', { flag: 'plan' }),
    successUrl: text('URL', { meaning: 'Where the page leads afterwards.' }),
    cancelUrl: text('URL', { meaning: 'Where the page leads when the user leaves it.' }),
    idempotencyKey: idempotencyKey('gets the same page'),
  },
  change: (core, request) => core.payments.createPlanCheckout(request),
  lines: ({ checkoutUrl }) => [checkoutUrl],
})

const cancel = action({
  text: 'Moves a user to Starter when the running period ends, or as --timing sets.',
  options: { ...appUser, timing },
  change: async (core, request) =>
    (await core.subscriptions.cancelSubscription({ ...request, confirm: true })).change,
  lines: linesOfChange,
})

const resume = action({
  text: 'Cancels a scheduled change or end.',
  options: appUser,
  change: async (core, request) =>
    (await core.subscriptions.resumeSubscription({ ...request, confirm: true })).change,
  lines: linesOfChange,
})

function linesOfChange(change: SubscriptionChange | undefined): string[] {
  const { planId, effectiveAt, pending } = change ?? {}
  return [
    pending
      ? `stays on plan ${planId} until ${pending.effectiveAt}, then plan ${pending.planId}`
      : `on plan ${planId} since ${effectiveAt}`,
  ]
}

function linesOfState(state: SubscriptionState | undefined): string[] {
  const { subscription: current, pending, externalUserId = '' } = state ?? {}
  if (!current) return [`${externalUserId} has no subscription`]
  const { plan, status, currentPeriodStart, currentPeriodEnd } = current
  return [
    `${externalUserId} is on ${plan?.name ?? ''} (${plan?.type}), ${status}; ` +
      `period ${currentPeriodStart} to ${currentPeriodEnd}`,
    ...(pending ? [`from ${pending.effectiveAt} on ${pending.plan?.name ?? ''}`] : []),
  ]
}

export const subscription = createCommand('subscription', {
  summary: "shows and changes a user's plan",
  examples: [
    './tollgate subscription show --app app_0123456789abcdef01234567 --user ada',
    './tollgate subscription change --app app_0123456789abcdef01234567 --user ada --plan 0198c1f0-5f1c-7000-8000-000000000000 --timing immediate',
  ],
  actions: { show, change, checkout, cancel, resume },
})
