import { Type } from 'typebox'
import { Scope } from '../../../proto/scopes.ts'
import type {
  AdvancedClock,
  TestClock,
} from '../../../proto/gen/es/tollgate/billing/v1/clock_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { route } from '../../http/route.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/test-clock'
const tags = ['billing']
const count = (description: string) => Type.Integer({ minimum: 0, description })

const clockFields = {
  clientId: Type.String(),
  now: Instant('What the clock of the app shows.'),
  realNow: Instant('The real time.'),
  aheadSeconds: Type.Number({ description: 'By how much the clock is ahead.' }),
  latest: Instant('It cannot be moved beyond.'),
}
const Clock = named(Type.Object(clockFields), 'TestClock')
const Advanced = named(
  Type.Object({
    ...clockFields,
    from: Instant('What the clock showed before.'),
    to: Instant('Where it was moved to.'),
    pending: Type.Boolean({
      description: 'Something that became due is not done yet; it goes on by itself.',
    }),
    effects: Type.Object(
      {
        periodsRenewed: count('Users who entered their running period.'),
        creditsExpired: count('Credits that ended, included usage among them.'),
        expiredUsdExact: Type.String({ description: 'What was left of them.' }),
        subscriptionsSwitched: count('Subscriptions that gave way to their successors.'),
        planAdjustments: count('Credits that a raised Starter plan gave.'),
        overThreshold: count(
          'Users whose unpaid usage has reached the chargeThresholdUsd of their plan. Nothing is charged: no payment processor is connected.',
        ),
      },
      { description: 'What was booked since the clock shows the new time.' },
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

function readClock(app: App): void {
  app.get(
    url,
    route(
      { guard: { kind: 'm2m_or_member' }, refuses: ['CONFLICT'] },
      {
        operationId: 'getTestClock',
        summary: 'What the clock of a test app shows',
        description:
          'The time that periods, credits and plans of a test app go by. 409 for an app that is no test app.',
        tags,
        params: AppParams,
        response: { 200: ref(Clock) },
      },
    ),
    async ({ params, core }) =>
      toClock(requireField((await core.testClock.get(params)).clock, 'clock')),
  )
}

const Move = Type.Object(
  {
    to: Type.Optional(
      Type.String({ maxLength: 40, description: 'An ISO 8601 instant with a zone.' }),
    ),
    advanceSeconds: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 31_622_400, description: 'Instead of to.' }),
    ),
  },
  { additionalProperties: false },
)

function advanceClock(app: App): void {
  app.post(
    url,
    route(
      { guard: { kind: 'm2m_or_editor', scope: Scope.usersWrite }, refuses: ['CONFLICT'] },
      {
        operationId: 'advanceTestClock',
        summary: 'Move the clock of a test app ahead',
        description:
          'Moves the clock of a test app to an instant, or by some seconds: at most 366 days at once, two years in all, and 10,000 times. Answers when the periods, expiries and changes of plan that became due are booked, and says what they were. 409 for an app that is no test app, and for one whose clock was moved too often.',
        tags,
        params: AppParams,
        body: Move,
        // Core requires exactly one member.
        documentedBody: { ...Move, minProperties: 1, maxProperties: 1 },
        response: { 200: ref(Advanced) },
      },
    ),
    async ({ params, body: move, core }) =>
      toAdvanced(
        requireField((await core.testClock.advance({ ...params, move })).advanced, 'advanced'),
      ),
  )
}

const toClock = ({ clientId, now, realNow, aheadMs, latest }: TestClock) => ({
  clientId,
  now,
  realNow,
  aheadSeconds: Number(aheadMs) / 1000,
  latest,
})

function toAdvanced({ clock, from, to, effects, pending }: AdvancedClock) {
  const { periodsRenewed, creditsExpired, expiredUsdExact, ...changes } = requireField(
    effects,
    'effects',
  )
  const { subscriptionsSwitched, planAdjustments, overThreshold } = changes
  return {
    ...toClock(requireField(clock, 'clock')),
    from,
    to,
    pending,
    effects: {
      periodsRenewed,
      creditsExpired,
      expiredUsdExact,
      subscriptionsSwitched,
      planAdjustments,
      overThreshold,
    },
  }
}
