import { type TSchema, Type } from 'typebox'
import { named, ref } from '../../http/schemas.ts'
import { Instant, Micros, Wei, nullable } from '../schemas.ts'

/** Schemas of the usage routes' answers. */

const requestCount = Type.Integer({ description: 'Tickets.' })
const currency = Type.String()
const feeWei = Wei('Sum of the tickets.')
const networkFeeUsdMicros = Micros('Priced at signing time.')
const ownerChargeUsdMicros = Micros('Network fee and platform cut.')
const platformFeeUsdMicros = Micros('The platform cut: the owner charge without the network fee.')
const retail = {
  endUserBillableUsdMicros: Type.Optional(
    Micros('What end users are billed; with include=retail.'),
  ),
}
const retailRate = {
  retailRateUsd: Type.Optional(
    Type.String({
      description: 'USD for each micro of network fee, decimal; with include=retail.',
    }),
  ),
}
const exact = Type.String({ description: 'Decimal USD, not rounded.' })

const pipelineFields = {
  pipeline: Type.String(),
  modelId: Type.String(),
  requestCount,
  currency,
  feeWei,
  feeEth: Type.String({ description: 'Decimal.' }),
  networkFeeWei: Wei('The same as feeWei.'),
  networkFeeEth: Type.String({ description: 'The same as feeEth.' }),
  networkFeeUsdMicros,
  ownerChargeUsdMicros,
  platformFeeUsdMicros,
  ...retailRate,
  ...retail,
}

const sessionFields = {
  manifestId: Type.String({
    description:
      "The session's own id if the signer named no manifest; other for the sum of further sessions.",
  }),
  pipeline: Type.String(),
  modelId: Type.String(),
  requestCount,
  currency,
  feeWei,
  networkFeeUsdMicros,
  networkFeeUsdExact: exact,
  ownerChargeUsdMicros,
  platformFeeUsdMicros,
  billableSecs: Type.String({ description: 'Decimal.' }),
  firstAt: Type.Optional(Instant('First ticket in the range.')),
  lastAt: Type.Optional(Instant('Last ticket in the range.')),
  ...retailRate,
  ...retail,
}

const date = Type.String({ description: 'YYYY-MM-DD in UTC.' })
const hour = Instant('The start of a UTC hour.')
const topModels =
  'The five costliest models of the range, and other for the sum of further ones, at each time with tickets.'

const sumFields = {
  requestCount,
  currency,
  feeWei,
  networkFeeUsdMicros,
  ownerChargeUsdMicros,
  platformFeeUsdMicros,
  ...retail,
}

export const UsageRequest = named(
  Type.Object({
    time: Instant('When the ticket was signed.'),
    clientId: Type.String(),
    appName: Type.String(),
    endUserId: Type.String(),
    externalUserId: nullable({}),
    eventId: Type.String(),
    gatewayRequestId: Type.String({
      description: 'Not unique: a request may have several tickets.',
    }),
    pipeline: Type.String(),
    modelId: Type.String(),
    manifestId: Type.String(),
    sessionId: Type.String(),
    sequenceNumber: Type.String(),
    feeWei: Wei('The units that the signer signed for.'),
    networkFeeUsdMicros: nullable({
      description: 'Rounded up; null while the ticket waits for a rate.',
    }),
    networkFeeUsdExact: nullable({
      description: 'Decimal USD, not rounded; null while the ticket waits for a rate.',
    }),
    endUserBillableUsdMicros: nullable({ description: "The user's charge, rounded up." }),
    endUserBillableUsdExact: nullable({ description: 'The same, decimal USD, not rounded.' }),
    ownerChargeUsdMicros: nullable({ description: 'Network fee and platform cut, rounded up.' }),
    platformFeeUsdExact: nullable({ description: 'The platform cut, decimal USD.' }),
    platformFeeWei: nullable({ description: 'The platform cut of feeWei.' }),
    termsId: nullable({
      description:
        "The version of the user's plan that priced it; null while it waits for a rate, and if its prices were fixed elsewhere.",
    }),
    priceRule: nullable({
      description:
        "The rate of that version that applied: bundle (the model's), pipeline, plan, or pass_through (network price).",
    }),
    ethUsdPrice: nullable({
      description: 'The stored rate that priced it, decimal; null while it waits for one.',
    }),
    billableSecs: Type.String({ description: 'Decimal.' }),
    pixels: Type.String(),
  }),
  'UsageRequest',
)

export const UsageSession = named(
  Type.Object({
    sessionId: Type.String(),
    manifestId: Type.String(),
    clientId: Type.String(),
    appName: Type.String(),
    endUserId: Type.String(),
    externalUserId: nullable({}),
    pipeline: Type.String(),
    modelId: Type.String(),
    requestCount,
    unpricedCount: Type.Integer({ description: 'Tickets in wei but not yet in USD.' }),
    feeWei,
    networkFeeUsdMicros: Micros('Rounded up once, over the session.'),
    networkFeeUsdExact: exact,
    endUserBillableUsdMicros: Micros("The user's charge."),
    endUserBillableUsdExact: Type.String({ description: 'The same, decimal USD, not rounded.' }),
    ownerChargeUsdMicros,
    platformFeeUsdExact: Type.String({ description: 'The platform cut, decimal USD.' }),
    platformFeeWei: Wei('The platform cut of feeWei.'),
    billableSecs: Type.String({ description: 'Decimal.' }),
    pixels: Type.String(),
    startedAt: Instant('First ticket.'),
    endedAt: Type.Optional(
      Instant('Last ticket, once the session has been idle for five minutes.'),
    ),
  }),
  'UsageSession',
)

const historyOf = (items: TSchema) => ({
  clientId: Type.String(),
  externalUserId: Type.Optional(
    Type.String({ description: "Id of the token's user; absent in an app's list." }),
  ),
  groupBy: Type.String(),
  openMeterConfigured: Type.Boolean({
    description: 'Whether OpenMeter also reports usage; these figures are those of the ledger.',
  }),
  items: Type.Array(items, {
    description: 'UsageRequest, or UsageSession with groupBy=session.',
  }),
  nextCursor: Type.Optional(
    Type.String({ description: 'Cursor of the next page; absent on the last page.' }),
  ),
})

export const UsageHistory = named(
  Type.Object(historyOf(Type.Union([ref(UsageRequest), ref(UsageSession)]))),
  'UsageHistory',
)
/** The serializers of both kinds of pages, because that of a union validates each item. */
export const RequestHistory = { ...Type.Object(historyOf(ref(UsageRequest))) }
export const SessionHistory = { ...Type.Object(historyOf(ref(UsageSession))) }

export const Usage = named(
  Type.Object({
    clientId: Type.String(),
    source: Type.String(),
    period: Type.Object({
      start: nullable({ description: 'startDate of the request.' }),
      end: nullable({ description: 'endDate of the request.' }),
    }),
    totals: Type.Object({
      requestCount,
      currency,
      totalFeeWei: feeWei,
      totalFeeEth: Type.String({ description: 'Decimal.' }),
      networkFeeUsdMicros,
      ownerChargeWei: Wei('Network fee and platform cut.'),
      ownerChargeUsdMicros,
      platformFeeWei: Wei("The platform's cut; 0 when none is configured."),
      platformFeeUsdMicros: Micros("The platform's cut; 0 when none is configured."),
      platformCutPercent: nullable({ description: 'Decimal; null when none is configured.' }),
      unpricedCount: Type.Integer({ description: 'Tickets in wei but not yet in USD.' }),
      ...retail,
    }),
    byUser: Type.Optional(
      Type.Array(
        Type.Object({
          endUserId: Type.String({
            description: 'A UUID, unknown, or other for the sum of further rows.',
          }),
          externalUserId: nullable({}),
          userType: Type.String(),
          identifier: Type.String(),
          ...sumFields,
        }),
      ),
    ),
    byPipelineModel: Type.Optional(Type.Array(Type.Object(pipelineFields))),
    byDailyPipeline: Type.Optional(Type.Array(Type.Object({ date, ...pipelineFields }))),
    byManifest: Type.Optional(Type.Array(Type.Object(sessionFields))),
    bySession: Type.Optional(
      Type.Array(
        Type.Object({
          sessionId: Type.String({
            description: 'A session id, or other for the sum of further rows.',
          }),
          endUserId: Type.String(),
          externalUserId: nullable({}),
          ...sessionFields,
        }),
      ),
    ),
    byDay: Type.Optional(
      Type.Array(Type.Object({ date, ...sumFields }), {
        description: 'Every UTC day of the range.',
      }),
    ),
    byHour: Type.Optional(
      Type.Array(Type.Object({ hour, ...sumFields }), {
        description: 'Every UTC hour of the range; the first and the last may be partial.',
      }),
    ),
    byDailyTopModels: Type.Optional(
      Type.Array(Type.Object({ date, ...pipelineFields }), { description: topModels }),
    ),
    byHourlyTopModels: Type.Optional(
      Type.Array(Type.Object({ hour, ...pipelineFields }), { description: topModels }),
    ),
    events: Type.Optional(
      Type.Array(ref(UsageRequest), {
        description:
          'With gatewayRequestId: its tickets, the newest first, at most 1000; the totals are of all.',
      }),
    ),
  }),
  'Usage',
)
