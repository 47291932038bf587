import { Type } from 'typebox'
import { Scope } from '../../../proto/scopes.ts'
import type {
  AdvancedClock,
  TestClock,
} from '../../../proto/gen/es/tollgate/billing/v1/clock_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/test-clock'
const tags = ['billing']
const count = (description: string) => Type.Integer({ minimum: 0, description })

const clockFields = {
  clientId: Type.String(),
  now: Instant("The time of the app's clock."),
  realNow: Instant('The real time.'),
  aheadSeconds: Type.Number({ description: 'How far the clock is ahead of the real time.' }),
  latest: Instant('The latest time that the clock can be moved to.'),
}
const Clock = named(Type.Object(clockFields), 'TestClock')
const Advanced = named(
  Type.Object({
    ...clockFields,
    from: Instant('The time before the move.'),
    to: Instant('The time after the move.'),
    pending: Type.Boolean({
      description: 'Whether some due work is not done yet; the service finishes it.',
    }),
    effects: Type.Object(
      {
        periodsRenewed: count('Users who entered their running period.'),
        creditsExpired: count('Credits that ended, including included usage.'),
        expiredUsdExact: Type.String({ description: 'Their remaining amount.' }),
        subscriptionsSwitched: count('Subscriptions that were replaced by the scheduled one.'),
        planAdjustments: count('Credits from a raised Starter plan.'),
        overThreshold: count(
          'Users whose unpaid usage on no invoice has reached the chargeThresholdUsd of their plan, and is not collected yet.',
        ),
        invoicesIssued: count('Invoices that were issued.'),
        paymentsSucceeded: count('Charges of cards for invoices that succeeded.'),
        paymentsFailed: count('Charges of cards for invoices that failed.'),
      },
      { description: 'The work that was done because of the new time.' },
    ),
  }),
  'AdvancedTestClock',
)

/** The clock of a test app. */
export function testClockRoutes(app: App): void {
  addSchemas(app, [Clock, Advanced])
  readClock(app)
  advanceClock(app)
}

const readClock = get({
  url,
  guard: { kind: 'm2m_or_member' },
  refuses: ['CONFLICT'],
  operationId: 'getTestClock',
  summary: "The time of a test app's clock",
  description:
    "Returns the time that a test app's periods, credits and plans use. Returns 409 for an app that is not a test app.",
  tags,
  params: AppParams,
  response: { 200: ref(Clock) },
  handler: async ({ params, core }) =>
    toClock(requireField((await core.testClock.getTestClock(params)).clock, 'clock')),
})

const Move = Type.Object(
  {
    to: Type.Optional(
      Type.String({ maxLength: 40, description: 'An ISO 8601 instant with a zone.' }),
    ),
    advanceSeconds: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 31_622_400,
        description: 'Seconds to move the clock, instead of to.',
      }),
    ),
  },
  { additionalProperties: false },
)

const advanceClock = post({
  url,
  guard: { kind: 'm2m_or_editor', scope: Scope.usersWrite },
  refuses: ['CONFLICT'],
  operationId: 'advanceTestClock',
  summary: 'Move the clock of a test app ahead',
  description:
    'Moves the clock of a test app to an instant, or by some seconds: at most 366 days at once, two years in all, and 10,000 times. Answers after the due periods, expiries and plan changes are booked, with their counts. Returns 409 for an app that is not a test app, and for one whose clock was moved too often.',
  tags,
  params: AppParams,
  body: Move,
  // Core requires exactly one member.
  documentedBody: { ...Move, minProperties: 1, maxProperties: 1 },
  response: { 200: ref(Advanced) },
  handler: async ({ params, body: move, core }) =>
    toAdvanced(
      requireField(
        (await core.testClock.advanceTestClock({ ...params, move })).advanced,
        'advanced',
      ),
    ),
})

const toClock = (clock: TestClock) => ({ ...clock, aheadSeconds: Number(clock.aheadMs) / 1000 })

const toAdvanced = ({ clock, ...advanced }: AdvancedClock) => ({
  ...toClock(requireField(clock, 'clock')),
  ...advanced,
})
