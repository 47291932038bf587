import { Type } from 'typebox'

import type { App } from '../../http/app.ts'
import { post } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { CreateBody } from '../plans/schemas.ts'
import { AppParams, Instant, nullable } from '../schemas.ts'

const Usd = (description: string) =>
  Type.String({ pattern: '^-?[0-9]+(\\.[0-9]{1,18})?$', description })
const count = (description: string) => Type.Integer({ minimum: 0, description })

const Figures = named(
  Type.Object({
    revenueUsdExact: Usd('Retail of the tickets.'),
    marginUsdExact: Usd('Revenue minus network cost and platform cut.'),
    includedUsdExact: Usd('Included usage of the periods in the range.'),
    includedUnusedUsdExact: Usd('The unused part of the included usage.'),
    overageUsdExact: Usd('Usage that neither included usage nor credit covered (overage).'),
    usersRunOut: count('Users with overage.'),
  }),
  'WhatIfFigures',
)

const Row = named(
  Type.Object({
    plan: nullable({ description: 'The plan that the users would be on; null in the total.' }),
    isDraft: Type.Boolean({
      description: 'Whether the plan is from the request instead of the app.',
    }),
    users: count('Users with a ticket in the range.'),
    tickets: Type.String({ pattern: '^[0-9]+$', description: 'Their tickets.' }),
    unpricedTickets: Type.String({
      pattern: '^[0-9]+$',
      description: 'Tickets that wait for a price; no other figure includes them.',
    }),
    networkCostUsdExact: Usd("The same with today's plans and with the drafts."),
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
        'By the plan that users would be on: the drafts, then the plans of users who keep theirs.',
    }),
    runOuts: Type.Array(
      Type.Object({
        externalUserId: Type.String(),
        plan: Type.String(),
        at: Instant('Signing time of the first ticket with overage.'),
        todayAt: nullable({
          format: 'date-time',
          description: 'The same time in the booked figures; null without overage.',
        }),
      }),
      { description: 'Users who would have run out of money, the earliest first; at most 1,000.' },
    ),
    moreRunOuts: count('Number of such users that are not in the list.'),
  }),
  'WhatIf',
)

const draftName = (description: string) => nullable({ description })
const Body = Type.Object({
  from: Type.String({
    description: 'A date or an instant: start of the range of signing times, inclusive.',
  }),
  to: Type.String({
    description:
      'A date or an instant: end of the range, exclusive; at most 366 days after the start.',
  }),
  plans: Type.Array(CreateBody, {
    minItems: 1,
    maxItems: 50,
    description: "A draft plan, in the form of a plan's creation.",
  }),
  assign: Type.Optional(
    Type.Object(
      {
        default: Type.Optional(
          draftName('The draft of all other users; null or absent: they keep their plan.'),
        ),
        plans: Type.Optional(
          Type.Record(Type.String(), draftName('The name of one of plans.'), {
            description: 'Drafts by id or name of the present plan.',
          }),
        ),
        users: Type.Optional(
          Type.Record(Type.String(), draftName('The name of one of plans.'), {
            description: 'Drafts by externalUserId; at most 10,000.',
          }),
        ),
      },
      { description: 'The draft of each user. Required with more than one plan.' },
    ),
  ),
})

/** Simulates what draft plans would have charged. */
export function whatIfRoutes(app: App): void {
  addSchemas(app, [Figures, Row, Answer])
  post({
    url: '/api/v1/apps/:clientId/billing/whatif',
    guard: { kind: 'hidden_member_edit' },
    refuses: ['CONFLICT'],
    operationId: 'simulatePlans',
    summary: 'Try plans before selling them',
    description:
      "Replays the app's booked tickets of a range with draft plans, and compares the result with the booked figures. It writes nothing. Returns 409 while another replay of the app runs, and 400 if the replay takes longer than a minute.",
    tags: ['billing'],
    params: AppParams,
    coreBody: Body,
    response: { 200: ref(Answer) },
    handler: async ({ params, body, core }) => {
      const { whatIf } = await core.whatIf.simulatePlans({
        ...params,
        requestJson: JSON.stringify(body),
      })
      return { ...whatIf, total: { ...whatIf?.total, plan: null } }
    },
  })(app)
}
