import type {
  Admission,
  GetProcessorResponse,
} from '../../../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { action, createCommand } from '../../command.ts'
import { app, argument, integer, required, text } from '../../options.ts'
import { properties, table } from '../../output.ts'

const show = action({
  text:
    "Prints the state of an app's account at the payment processor: the plane (test apps use the test plane), what the account may do, " +
    'and what the activation gate decides about new users and about plans with a price.',
  options: { clientId: app },
  read: (core, request) => core.billing.getProcessor(request),
  lines: linesOf,
})

const connect = action({
  text:
    "Starts connecting an app's own account, or continues it. Prints the address at which the app's first owner completes the account; it " +
    'expires after a few minutes, and the owner must be logged in within 15 minutes to come back. Owners do the same on their own at ' +
    '/apps/{clientId}/billing.',
  options: { clientId: app },
  change: (core, request) => core.billing.connectProcessor(request),
  lines: ({ url }) => [url],
})

const disconnect = action({
  text: "Ends an app's connection, if there is one. Refused while something is unpaid. Payments that were made stay as they are.",
  options: { clientId: app },
  change: async (core, request) => {
    await core.billing.disconnectProcessor(request)
    return core.billing.getProcessor(request)
  },
  lines: linesOf,
})

const payouts = action({
  text: 'Prints what the payment processor holds for an app, and its payouts to the owner, the newest first. Each core asks the processor at most once a minute.',
  options: {
    clientId: app,
    limit: integer('N', { from: 1, to: 50, fallback: 20 }),
    cursor: text('CURSOR'),
  },
  read: async (core, { clientId, ...page }) => {
    const { balances } = await core.billing.getProcessorBalance({ clientId })
    return { ...(await core.billing.listPayouts({ clientId, ...page })), balances }
  },
  lines: ({ account, balances, payouts: rows }) => [
    ...properties([
      ['account', account ?? 'none'],
      ...balances.map(
        ({ currency, available, pending }) =>
          [currency, `${available} available, ${pending} pending`] as const,
      ),
    ]),
    ...table(
      rows,
      [
        ['made', ({ createdAt }) => createdAt.slice(0, 19)],
        ['at the bank', ({ arrivalDate }) => arrivalDate],
        ['amount', ({ amount, currency }) => `${amount} ${currency}`],
        [
          'status',
          ({ status, failure }) => (failure === undefined ? status : `${status}: ${failure}`),
        ],
        'id',
      ],
      'no payouts',
    ),
  ],
})

function linesOf(state: GetProcessorResponse): string[] {
  return properties([
    ['app', state.settings?.clientId],
    ['processor', state.processor ?? 'none in this deployment'],
    ['connection', state.status],
    ['plane', state.plane],
    ['connected since', state.connectedAt],
    ['may take payments', state.chargesEnabled],
    ['payouts', state.payoutsEnabled],
    ['details submitted', state.detailsSubmitted],
    ['billing mode', state.settings?.billingMode],
    ['application fee', state.applicationFee === 'none' ? 'none' : "the users' owner charge"],
    ['new users', textOf(state.provisioning)],
    ['plans with a price', textOf(state.selling)],
  ])
}

function textOf(admission: Admission | undefined): string {
  if (admission?.code === undefined) return 'allowed'
  return `${admission.isEnforced ? 'refused' : 'allowed, but would be refused'}: ${admission.code}`
}

const resolve = action({
  text:
    'Closes a difference between the payment processor and our payments, with what was done about it. It is not reported again ' +
    'while its figures stay as they are.',
  options: {
    id: argument('DIFFERENCE'),
    resolution: required('TEXT', { flag: 'note', meaning: 'What was done about it.' }),
  },
  change: (core, request) => core.processorReconciliation.resolveProcessorDifference(request),
  lines: ({ difference }) => [`${difference?.id}  resolved`],
})

export const processor = createCommand('processor', {
  summary:
    "shows, starts and ends an app's connection to the payment processor, shows its payouts, and closes differences",
  examples: [
    './tollgate processor show --app app_0123456789abcdef01234567',
    './tollgate processor connect --app app_0123456789abcdef01234567',
    './tollgate processor payouts --app app_0123456789abcdef01234567',
    './tollgate processor resolve 0199b0c2-7c1e-7a42-9f51-d4f1a1b2c3d4 --note "refunded by hand"',
  ],
  actions: { show, connect, disconnect, payouts, resolve },
})
