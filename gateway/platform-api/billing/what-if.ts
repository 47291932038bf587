import { Type } from 'typebox'
import type {
  WhatIf,
  WhatIfRow as RowMessage,
} from '../../../proto/gen/es/tollgate/billing/v1/whatif_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { routeForCore } from '../../http/route.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { CreateBody } from '../plans/schemas.ts'
import { AppParams, Instant, nullable } from '../schemas.ts'

const Usd = (description: string) =>
  Type.String({ pattern: '^-?[0-9]+(\\.[0-9]{1,18})?$', description })
const count = (description: string) => Type.Integer({ minimum: 0, description })

const Figures = named(
  Type.Object({
    revenueUsdExact: Usd('Retail of the tickets.'),
    marginUsdExact: Usd('Revenue less network cost and platform cut.'),
    includedUsdExact: Usd('Included usage of the periods in the range.'),
    includedUnusedUsdExact: Usd('What of it nobody used.'),
    overageUsdExact: Usd('What neither included usage nor credit was left for.'),
    usersRunOut: count('Users who had tickets that nothing was left for.'),
  }),
  'WhatIfFigures',
)

const Row = named(
  Type.Object({
    plan: nullable({ description: 'The plan that the users would be on; null in the total.' }),
    isDraft: Type.Boolean({ description: 'A plan of the request, not one of the app.' }),
    users: count('Users with a ticket in the range.'),
    tickets: Type.String({ pattern: '^[0-9]+$', description: 'All of them.' }),
    unpricedTickets: Type.String({
      pattern: '^[0-9]+$',
      description: 'Those that wait for a price: in no other figure.',
    }),
    networkCostUsdExact: Usd('The same today and on the drafts.'),
    platformCutUsdExact: Usd("The platform's cut of the network cost; the same in both."),
    today: ref(Figures),
    whatIf: ref(Figures),
    usersPayingMore: count('Users whose tickets would sell for more.'),
    usersPayingLess: count('Users whose tickets would sell for less.'),
    usersPayingSame: count('Users whose tickets would sell for the same.'),
  }),
  'WhatIfRow',
)

const Answer = named(
  Type.Object({
    from: Instant('The first instant of the range.'),
    to: Instant('The first instant after it.'),
    total: ref(Row),
    plans: Type.Array(ref(Row), {
      description:
        'By the plan that users would be on: the drafts, then the plans of users who stay.',
    }),
    runOuts: Type.Array(
      Type.Object({
        externalUserId: Type.String(),
        plan: Type.String(),
        at: Instant('When the first ticket was signed that nothing would have been left for.'),
        todayAt: nullable({
          format: 'date-time',
          description: 'The same as it was booked; null where there was enough.',
        }),
      }),
      { description: 'Users whose money would have ended, the earliest first; at most 1,000.' },
    ),
    moreRunOuts: count('Those that are not in the list.'),
  }),
  'WhatIf',
)

const draftName = (description: string) => nullable({ description })
const Body = Type.Object({
  from: Type.String({ description: 'A date or an instant: tickets signed from then on.' }),
  to: Type.String({
    description: 'A date or an instant, at most 366 days later: tickets signed before.',
  }),
  plans: Type.Array(CreateBody, {
    minItems: 1,
    maxItems: 50,
    description: 'As a plan is created.',
  }),
  assign: Type.Optional(
    Type.Object(
      {
        default: Type.Optional(draftName('Of all others; null, as without it, is no change.')),
        plans: Type.Optional(
          Type.Record(Type.String(), draftName('The name of one of plans.'), {
            description: 'By the id or name of the present plan.',
          }),
        ),
        users: Type.Optional(
          Type.Record(Type.String(), draftName('The name of one of plans.'), {
            description: 'By externalUserId; at most 10,000.',
          }),
        ),
      },
      { description: 'Who would be on which plan. Required with more than one plan.' },
    ),
  ),
})

/** Simulates what draft plans would have charged. */
export function whatIfRoutes(app: App): void {
  addSchemas(app, [Figures, Row, Answer])
  app.post(
    '/api/v1/apps/:clientId/billing/whatif',
    routeForCore(
      { guard: { kind: 'hidden_member_edit' }, refuses: ['CONFLICT'] },
      {
        operationId: 'tryPlans',
        summary: 'Try plans before selling them',
        description:
          "Replays the app's real tickets of a range against plans that nobody has made, and answers beside what was booked what they would have brought. Writes nothing. 409 while another one of the app runs; 400 when it takes longer than a minute.",
        tags: ['billing'],
        params: AppParams,
        body: Body,
        response: { 200: ref(Answer) },
      },
    ),
    async ({ params, body, core }) => {
      const { whatIf } = await core.whatIf.tryPlans({
        ...params,
        requestJson: JSON.stringify(body),
      })
      return render(requireField(whatIf, 'what_if'))
    },
  )
}

const render = ({ from, to, total, plans, runOuts, moreRunOuts }: WhatIf) => ({
  from,
  to,
  total: { ...toRow(requireField(total, 'total')), plan: null },
  plans: plans.map(toRow),
  runOuts: runOuts.map(({ externalUserId, plan, at, todayAt }) => ({
    externalUserId,
    plan,
    at,
    todayAt: todayAt ?? null,
  })),
  moreRunOuts,
})

const toRow = (row: RowMessage) => ({
  ...row,
  today: requireField(row.today, 'today'),
  whatIf: requireField(row.whatIf, 'what_if'),
})
