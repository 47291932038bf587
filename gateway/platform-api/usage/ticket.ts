import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, Wei, nullable, required } from '../schemas.ts'

const usd = (description: string) =>
  Type.String({ description: `${description}, USD, exact decimal.` })
const decimal = (description: string) => Type.String({ description })

const draws = (description: string) =>
  Type.Array(
    Type.Object({
      creditId: Type.String(),
      kind: Type.String({ description: 'included, grant or adjustment.' }),
      source: Type.String({ description: 'trial, manual, promo or plan_adjustment.' }),
      amountUsd: usd('What it paid'),
    }),
    { description },
  )

const Charge = Type.Object(
  {
    id: Type.String(),
    seq: Type.String({ description: "The number of the entry in its user's ledger." }),
    bookedAt: Instant('When the ledger booked it.'),
    ticketCount: Type.Optional(
      Type.Integer({ description: 'The number of tickets in the charge; absent if unknown.' }),
    ),
    paidUsd: usd('Part paid by credits'),
    overageUsd: usd('Overage'),
    draws: draws('The credits that it burned, with their amounts.'),
    share: Type.Optional(
      Type.Object(
        { draws: draws('The amount that this ticket burned.'), overageUsd: usd('Of this ticket') },
        { description: "The ticket's own part; absent if only the whole charge is known." },
      ),
    ),
  },
  { description: 'One entry of the ledger for all tickets of a user in one batch.' },
)

const Sale = Type.Object(
  {
    rate: Type.Object({
      id: Type.String(),
      source: Type.String(),
      observedAt: Instant('When it was observed.'),
      usdPerEth: decimal('USD for one ETH, decimal.'),
    }),
    networkCostUsd: usd('Fee at the rate'),
    plan: Type.Optional(
      Type.Object(
        {
          id: Type.String(),
          name: Type.String({ description: "The plan's present name." }),
          version: Type.Integer(),
          termsId: Type.String({ description: 'The id of the version.' }),
        },
        { description: 'Absent for a ticket that names no version.' },
      ),
    ),
    rule: Type.Optional(
      Type.Object({
        name: Type.String({ description: 'bundle, pipeline, plan or pass_through.' }),
        bundleId: Type.Optional(Type.String()),
        retailRateUsd: decimal('USD for one USD-micro of network cost, decimal.'),
        multiple: decimal('The same as a multiple of the network cost.'),
      }),
    ),
    retailCostUsd: usd("The user's charge"),
    cut: Type.Optional(
      Type.Object(
        { percent: decimal('Of the network cost, decimal.'), since: Instant('Since when.') },
        { description: "The platform's cut; absent if none applied at signing." },
      ),
    ),
    platformFeeUsd: usd("The platform's cut"),
    platformFeeWei: Wei("The platform's cut."),
    ownerChargeUsd: usd('Network cost and platform fee'),
    period: Type.Optional(
      Type.Object(
        { start: Instant('Included.'), end: Instant('Not included.') },
        { description: 'The period whose plan sold it.' },
      ),
    ),
    charge: Type.Optional(Charge),
  },
  { description: 'Absent while the ticket waits for a rate.' },
)

const TicketAnswer = named(
  Type.Object({
    clientId: Type.String(),
    eventId: Type.String(),
    gatewayRequestId: Type.String(),
    endUserId: Type.String(),
    externalUserId: nullable({}),
    sessionId: Type.String(),
    sequenceNumber: Type.String(),
    manifestId: Type.String(),
    pipeline: Type.String(),
    modelId: Type.String(),
    signedAt: Type.String({ description: 'ISO 8601, UTC, with microseconds.' }),
    receivedAt: Instant('When core booked the event.'),
    feeWei: Wei('The units that the signer signed for.'),
    clockAheadMs: Type.Optional(
      Type.String({
        description:
          'For a test app: how far its clock, which dates the ticket, was ahead of the signer.',
      }),
    ),
    sale: Type.Optional(Sale),
    formula: Type.Array(Type.String(), {
      description: 'The calculation, one line for each figure.',
    }),
  }),
  'Ticket',
)

const TicketParams = Type.Object({
  ...AppParams.properties,
  eventId: required('The eventId of the usage history.'),
})

/** One ticket with everything that determined its price and charge. */
export function ticketRoutes(app: App): void {
  addSchemas(app, [TicketAnswer])
  get({
    url: '/api/v1/builder/apps/:clientId/usage/requests/:eventId',
    guard: { kind: 'm2m_or_member' },
    limit: 'failures',
    metered: true,
    operationId: 'explainTicket',
    summary: 'Explain a charge',
    description:
      'Returns one ticket: its fee, rate, plan version, price rule, cut and period, the charge with the credits that it burned, and the calculation, to check with a pocket calculator.',
    tags: ['usage'],
    params: TicketParams,
    response: { 200: ref(TicketAnswer) },
    handler: async ({ params, core }) =>
      requireField((await core.tickets.explainTicket(params)).ticket, 'ticket'),
  })(app)
}
