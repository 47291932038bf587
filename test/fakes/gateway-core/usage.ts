import type { ServiceDefinition } from '@grpc/grpc-js'
import * as usage from '../../../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'
import * as tickets from '../../../proto/gen/ts-proto/tollgate/usage/v1/tickets.ts'
import * as meters from '../../../proto/gen/ts-proto/tollgate/usage/v1/meters.ts'
import * as receipts from '../../../proto/gen/ts-proto/tollgate/books/v1/receipts.ts'
import * as loss from '../../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import type * as metering from '../../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { at, clientId, user } from './identity.ts'

const explained = tickets.Ticket.fromPartial({
  clientId,
  eventId: 'e-1',
  gatewayRequestId: 'r-1',
  endUserId: user.id,
  externalUserId: 'ada',
  sessionId: 's-1',
  sequenceNumber: '7',
  manifestId: 'm-1',
  pipeline: 'text-to-image',
  modelId: 'sdxl',
  signedAt: '2026-01-02T03:04:05.000001Z',
  receivedAt: at,
  feeWei: '1000000000000000',
  sale: {
    rate: { id: '1', source: 'fixed', observedAt: at, usdPerEth: '3000' },
    networkCostUsd: '3',
    plan: { id: 'p-1', name: 'Pro', version: 2, termsId: '9' },
    rule: { name: 'plan', retailRateUsd: '0.0000015', multiple: '1.5' },
    retailCostUsd: '4.5',
    platformFeeUsd: '0',
    platformFeeWei: '0',
    ownerChargeUsd: '3',
    charge: {
      id: 'c-1',
      seq: '4',
      bookedAt: at,
      ticketCount: 2,
      paidUsd: '9',
      overageUsd: '0',
      draws: [{ creditId: 'g-1', kind: 'grant', source: 'manual', amountUsd: '9' }],
    },
  },
  formula: ['fee = 1000000000000000 wei = 0.001 ETH'],
})

const issuedReceipt = receipts.Receipt.fromPartial({
  receipt: 'e30.e30.c2ln',
  proof: { day: '2026-01-02', leafIndex: 1, treeSize: 2, inclusionPath: ['0'.repeat(64)] },
  root: 'e30.e30.cm9vdA',
  keys: [{ kty: 'EC', kid: 'k-1', alg: 'ES256', use: 'sig', crv: 'P-256', x: 'eA', y: 'eQ' }],
  jwksUri: 'https://svc.example/api/v1/oidc/jwks',
})

/** No collector has read its end for more than a minute. */
const unreadStream: metering.Stream = {
  source: 'kafka:tickets:1',
  partition: 0,
  nextOffset: '10',
  tickets: '10',
  duplicates: '0',
  ignored: '0',
  quarantined: '0',
  newestAt: at,
  bookedAt: at,
  eventsBehind: undefined,
  secondsBehind: undefined,
  endReadAt: at,
  stalled: false,
}

const sums = {
  pipeline: 'text-to-image',
  modelId: 'sdxl',
  requestCount: '3',
  feeWei: '3000000000000000',
  networkFeeUsdMicros: '9000000',
  networkFeeUsdExact: '9',
  ownerChargeUsdMicros: '9000000',
  platformFeeUsdMicros: '0',
  billableSecs: '1.5',
  firstAt: at,
  lastAt: at,
}

const models = {
  pipeline: 'text-to-image',
  modelId: 'sdxl',
  requestCount: '3',
  feeWei: '3000000000000000',
  feeEth: '0.003',
  networkFeeUsdMicros: '9000000',
  ownerChargeUsdMicros: '9000000',
  platformFeeUsdMicros: '0',
}

const ticket: usage.UsageRequest = {
  time: at,
  eventId: 'e-1',
  gatewayRequestId: 'req-9',
  endUserId: user.id,
  externalUserId: 'ada',
  appName: 'Demo',
  pipeline: 'text-to-image',
  modelId: 'sdxl',
  manifestId: 'm-1',
  sessionId: 's-1',
  sequenceNumber: '0',
  feeWei: '1000000000',
  networkFeeUsdMicros: '3',
  networkFeeUsdExact: '0.000003',
  ethUsdPrice: '3000',
  billableSecs: '1.5',
  pixels: '262144',
  endUserBillableUsdMicros: '5',
  endUserBillableUsdExact: '0.0000045',
  ownerChargeUsdMicros: '4',
  platformFeeUsdExact: '0.0000003',
  platformFeeWei: '100000000',
  termsId: '7',
  priceRule: 'plan',
}

const unpriced: usage.UsageRequest = {
  ...ticket,
  eventId: 'e-2',
  externalUserId: undefined,
  networkFeeUsdMicros: undefined,
  networkFeeUsdExact: undefined,
  ethUsdPrice: undefined,
  endUserBillableUsdMicros: undefined,
  endUserBillableUsdExact: undefined,
  ownerChargeUsdMicros: undefined,
  platformFeeUsdExact: undefined,
  platformFeeWei: undefined,
  termsId: undefined,
  priceRule: undefined,
}

const session: usage.UsageSession = {
  sessionId: 's-1',
  manifestId: 'm-1',
  endUserId: user.id,
  externalUserId: 'ada',
  appName: 'Demo',
  pipeline: 'text-to-image',
  modelId: 'sdxl',
  requestCount: '3',
  unpricedCount: '1',
  feeWei: '3000000000',
  networkFeeUsdMicros: '9',
  networkFeeUsdExact: '0.000009',
  billableSecs: '1.5',
  pixels: '262144',
  endUserBillableUsdMicros: '14',
  endUserBillableUsdExact: '0.0000135',
  ownerChargeUsdMicros: '10',
  platformFeeUsdExact: '0.0000009',
  platformFeeWei: '300000000',
  startedAt: at,
  endedAt: at,
}

const used: usage.Usage = {
  clientId,
  start: undefined,
  end: undefined,
  totals: {
    requestCount: '3',
    totalFeeWei: '3000000000000000',
    totalFeeEth: '0.003',
    networkFeeUsdMicros: '9000000',
    unpricedCount: '1',
    ownerChargeWei: '3000000000000000',
    ownerChargeUsdMicros: '9000000',
    platformFeeWei: '0',
    platformFeeUsdMicros: '0',
  },
  byUser: [
    {
      endUserId: user.id,
      externalUserId: 'ada',
      requestCount: '2',
      feeWei: '2000000000000000',
      networkFeeUsdMicros: '6000000',
      ownerChargeUsdMicros: '6000000',
      platformFeeUsdMicros: '0',
    },
    {
      endUserId: 'unknown',
      externalUserId: undefined,
      requestCount: '1',
      feeWei: '1000000000000000',
      networkFeeUsdMicros: '3000000',
      ownerChargeUsdMicros: '3000000',
      platformFeeUsdMicros: '0',
    },
  ],
  byPipelineModel: [models],
  byDailyPipeline: [{ ...models, date: '2026-01-02' }],
  byManifest: [{ ...sums, manifestId: 'm-1' }],
  bySession: [
    { ...sums, manifestId: 'm-1', sessionId: 's-1', endUserId: user.id, externalUserId: 'ada' },
  ],
  byDay: [
    {
      date: '2026-01-02',
      requestCount: '3',
      feeWei: '3000000000000000',
      networkFeeUsdMicros: '9000000',
      ownerChargeUsdMicros: '9000000',
      platformFeeUsdMicros: '0',
    },
  ],
  byHour: [
    {
      hour: '2026-01-02T03:00:00.000Z',
      requestCount: '3',
      feeWei: '3000000000000000',
      networkFeeUsdMicros: '9000000',
      ownerChargeUsdMicros: '9000000',
      platformFeeUsdMicros: '0',
    },
  ],
  byDailyTopModels: [{ ...models, date: '2026-01-02' }],
  byHourlyTopModels: [{ ...models, hour: '2026-01-02T03:00:00.000Z' }],
  events: [ticket],
}

const calls: loss.CallTotals = {
  authorisedCount: '9',
  authorisedUsdMicros: '90',
  ticketedCount: '5',
  ticketedUsdMicros: '40',
  lostCount: '1',
  lostUsdMicros: '10',
  chargedCount: '0',
  chargedUsdMicros: '0',
  releasedCount: '2',
  releasedUsdMicros: '20',
  lateCount: '1',
  lateUsdMicros: '10',
}

const lost: loss.ListLossResponse = {
  clientId,
  period: { start: at, end: undefined },
  totals: {
    sessionCount: '1',
    lostCount: '3',
    estimatedUsdMicros: '7',
    forkedCount: '1',
    lateCount: '2',
  },
  sessions: [
    {
      externalUserId: 'ada',
      manifestId: 'm-1',
      sessionId: '9f86d081',
      startedAt: at,
      lastAt: at,
      requestCount: '5',
      lostCount: '3',
      forkedCount: '1',
      lateCount: '0',
      estimatedUsdMicros: '7',
      missing: [{ first: '2', last: '4' }],
      missingMore: false,
    },
  ],
  nextCursor: 'next',
  calls,
  callSessions: [
    {
      externalUserId: undefined,
      sessionId: '9f86d081',
      type: 'live',
      startedAt: at,
      lastAt: at,
      calls,
    },
  ],
}

export const answers = {
  queryMeter: {
    externalUserId: 'ada',
    rows: [
      {
        windowStart: at,
        windowEnd: at,
        value: '1250000000000000000001',
        dimensions: { client_id: clientId, external_user_id: 'ada' },
      },
    ],
  } satisfies meters.QueryMeterResponse,
  queryUsage: { usage: used } satisfies usage.QueryUsageResponse,
  listLoss: lost,
  getReceipt: { receipt: issuedReceipt } satisfies receipts.GetReceiptResponse,
  listRoots: {
    roots: {
      roots: [
        { day: '2026-01-02', treeSize: 2, rootHash: '0'.repeat(64), statement: 'e30.e30.cm9vdA' },
      ],
      keys: issuedReceipt.keys,
      nextFrom: '2026-01-03',
    },
  } satisfies receipts.ListRootsResponse,
  getMeteringStatus: {
    streams: [unreadStream],
    unpricedTickets: '0',
    quarantinedEvents: '0',
  } satisfies metering.GetMeteringStatusResponse,
  explainTicket: { ticket: explained } satisfies tickets.ExplainTicketResponse,
  queryOwnUsage: { usage: used } satisfies usage.QueryOwnUsageResponse,
  listUsageRequests: {
    requests: [ticket, unpriced],
    openmeterConfigured: true,
    nextCursor: 'next',
  } satisfies usage.ListUsageRequestsResponse,
  listOwnUsageRequests: {
    requests: [ticket],
    openmeterConfigured: true,
    nextCursor: undefined,
    clientId,
    externalUserId: 'ada',
  } satisfies usage.ListOwnUsageRequestsResponse,
  listUsageSessions: {
    sessions: [session],
    openmeterConfigured: true,
    nextCursor: undefined,
  } satisfies usage.ListUsageSessionsResponse,
  listOwnUsageSessions: {
    sessions: [{ ...session, endedAt: undefined }],
    openmeterConfigured: true,
    nextCursor: 'next',
    clientId,
    externalUserId: 'ada',
  } satisfies usage.ListOwnUsageSessionsResponse,
}

export const services: ServiceDefinition[] = [
  meters.MeterServiceService,
  loss.LossServiceService,
  usage.UsageServiceService,
  tickets.TicketServiceService,
  receipts.ReceiptServiceService,
]
