import type {
  SubscriptionChange,
  SubscriptionItem,
  SubscriptionState,
} from '../../../../proto/gen/ts-proto/tollgate/plans/v1/subscriptions.ts'
import { type Command, changeCore, need, parseOptions, runAction, withCore } from '../../command.ts'
import { printJson, printLines, printable, table } from '../../output.ts'

const subject = {
  app: { type: 'string' },
  user: { type: 'string' },
} as const
const withTiming = { ...subject, timing: { type: 'string' } } as const

export const subscription: Command = {
  summary: "shows and changes a user's plan",
  help: {
    usages: [
      {
        syntax: 'tollgate subscription show [--app APP] --user EXTERNAL_USER_ID [--json]',
        text: "Prints a user's plan, the running period, the next plan, and the last twenty subscriptions.",
      },
      {
        syntax:
          'tollgate subscription change [--app APP] --user EXTERNAL_USER_ID --plan PLAN_ID [--timing WHEN] [--key TEXT] [--json]',
        text:
          "Moves a user to another active plan. The command checks neither the user's payment method nor the " +
          'activation gate: the operator settles both by hand.',
      },
      {
        syntax:
          'tollgate subscription cancel [--app APP] --user EXTERNAL_USER_ID [--timing WHEN] [--json]',
        text: 'Moves a user to Starter when the running period ends, or as --timing sets.',
      },
      {
        syntax: 'tollgate subscription resume [--app APP] --user EXTERNAL_USER_ID [--json]',
        text: 'Cancels a scheduled change or end.',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [
          [
            '--timing WHEN',
            'immediate or next_billing_cycle. By default a change to a more expensive plan, or from a free plan to the first usage plan, begins at once.',
          ],
          ['--key TEXT', 'An idempotency key: a repeat with the same key makes no second change.'],
        ],
      },
    ],
    examples: [
      './tollgate subscription show --app app_0123456789abcdef01234567 --user ada',
      './tollgate subscription change --app app_0123456789abcdef01234567 --user ada --plan 0198c1f0-5f1c-7000-8000-000000000000 --timing immediate',
    ],
  },
  run: runAction('subscription', { show, change, cancel, resume }),
}

async function show(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, subject)
  const { app, user } = await need('subscription show', values, ['app', 'user'])
  const { state, items } = await withCore(values, (core) =>
    core.readSubscription({ clientId: app, externalUserId: user }),
  )
  if (values.json) return printJson({ ...state, items })
  printLines([
    ...linesOf(state),
    ...(items.length === 0 ? [] : table(['from', 'to', 'state', 'plan', 'id'], items.map(rowOf))),
  ])
}

async function change(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, {
    ...withTiming,
    plan: { type: 'string' },
    key: { type: 'string' },
  })
  const { app, user, plan } = await need('subscription change', values, ['app', 'user', 'plan'])
  const answer = await changeCore(values, (core) =>
    core.switchSubscription({
      clientId: app,
      externalUserId: user,
      planId: plan,
      timing: values.timing,
      idempotencyKey: values.key,
    }),
  )
  printChange(answer.change, values.json)
}

async function cancel(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, withTiming)
  const { app, user } = await need('subscription cancel', values, ['app', 'user'])
  const answer = await changeCore(values, (core) =>
    core.endSubscription({ clientId: app, externalUserId: user, timing: values.timing }),
  )
  printChange(answer.change, values.json)
}

async function resume(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, subject)
  const { app, user } = await need('subscription resume', values, ['app', 'user'])
  const answer = await changeCore(values, (core) =>
    core.keepSubscription({ clientId: app, externalUserId: user }),
  )
  printChange(answer.change, values.json)
}

function printChange(of: SubscriptionChange | undefined, asJson: boolean | undefined): void {
  if (asJson) return printJson(of)
  const { planId, effectiveAt, pending } = of ?? {}
  printLines([
    pending
      ? `stays on plan ${planId} until ${pending.effectiveAt}, then plan ${pending.planId}`
      : `on plan ${planId} since ${effectiveAt}`,
  ])
}

function linesOf(state: SubscriptionState | undefined): string[] {
  const { subscription: of, pending } = state ?? {}
  const name = printable(state?.externalUserId ?? '')
  if (!of) return [`${name} has no subscription`]
  const period = `period ${of.currentPeriodStart} to ${of.currentPeriodEnd}`
  return [
    `${name} is on ${printable(of.plan?.name ?? '')} (${of.plan?.type}), ${of.status}; ${period}`,
    ...(pending ? [`from ${pending.effectiveAt} on ${printable(pending.plan?.name ?? '')}`] : []),
  ]
}

const rowOf = (item: SubscriptionItem): string[] => [
  item.activeFrom,
  item.activeTo ?? '',
  item.status,
  printable(item.planName),
  item.id,
]
