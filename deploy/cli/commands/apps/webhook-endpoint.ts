import type {
  WebhookDelivery,
  WebhookEndpoint,
} from '../../../../proto/gen/ts-proto/tollgate/webhooks/v1/webhooks.ts'
import { action, createCommand } from '../../command.ts'
import {
  app,
  argument,
  idempotencyKey,
  integer,
  list as repeated,
  page,
  text,
  toggle,
} from '../../options.ts'
import { table } from '../../output.ts'

const endpoint = { endpointId: argument('ID'), clientId: app }
const eventTypes = repeated('TYPE', {
  flag: 'event',
  meaning: 'A type of event to send; repeat it for more. All types by default.',
})
const signing = text('SIGNING', {
  fallback: '',
  meaning: 'hmac or ed25519; hmac by default, or as before.',
})

const tableOf = (endpoints: readonly (WebhookEndpoint | undefined)[]): string[] =>
  table(
    endpoints.filter((each) => each !== undefined),
    [
      'id',
      'url',
      ['events', ({ eventTypes: types }) => types.join(' ') || 'all'],
      [
        'status',
        ({ status, disabledReason }) => (disabledReason ? `${status}: ${disabledReason}` : status),
      ],
      ['signing', ({ secrets }) => secrets[0]?.signing],
      ['failing since', ({ failingSince }) => failingSince],
    ],
    'the app has no webhook endpoint',
  )

const keyLines = (answer: {
  endpoint?: WebhookEndpoint | undefined
  secret?: string | undefined
}) =>
  answer.secret === undefined
    ? [`public key: ${answer.endpoint?.secrets[0]?.publicKey ?? ''}`]
    : [`secret (shown once): ${answer.secret}`]

const list = action({
  text: "Lists the endpoints that receive the app's events.",
  options: { clientId: app },
  read: async (core, request) =>
    (await core.webhookEndpoints.listWebhookEndpoints(request)).endpoints,
  lines: tableOf,
})

const create = action({
  text: "Sends the app's events to URL from now on, and prints the signing secret once.",
  options: {
    url: argument('URL'),
    clientId: app,
    eventTypes,
    description: text('TEXT', { fallback: '' }),
    signing,
    idempotencyKey: idempotencyKey('creates no second endpoint'),
  },
  change: (core, request) => core.webhookEndpoints.createWebhookEndpoint(request),
  lines: (created) => [...tableOf([created.endpoint]), ...keyLines(created)],
})

const update = action({
  text: 'Changes an endpoint. With --enable, core forgets its failures and sends what waits; --disable stops deliveries. --all-events sends every type.',
  options: {
    ...endpoint,
    url: text('URL'),
    description: text('TEXT'),
    eventTypes,
    allEvents: toggle(),
    enable: toggle(),
    disable: toggle(),
  },
  atMostOne: [
    ['enable', 'disable'],
    ['eventTypes', 'allEvents'],
  ],
  change: async (core, { eventTypes: values, allEvents, enable, disable, ...request }) => {
    const isChanged = allEvents || values.length > 0
    const updated = await core.webhookEndpoints.updateWebhookEndpoint({
      ...request,
      eventTypes: isChanged ? { values: allEvents ? [] : values } : undefined,
      status: enable ? 'active' : disable ? 'disabled' : undefined,
    })
    return updated.endpoint
  },
  lines: (changed) => tableOf([changed]),
})

const remove = action({
  text: 'Deletes an endpoint with its secrets and its log of deliveries.',
  options: endpoint,
  change: async (core, request) => {
    await core.webhookEndpoints.deleteWebhookEndpoint(request)
    return { id: request.endpointId, deleted: true }
  },
  lines: ({ id }) => [`${id} is deleted`],
})

const rotate = action({
  text: 'Makes a new signing secret. The old ones sign, too, for N seconds, a day by default; 0 ends them at once.',
  options: {
    ...endpoint,
    signing,
    overlapSeconds: integer('N', { from: 0, to: 604_800, fallback: 86_400 }),
    idempotencyKey: idempotencyKey('makes no second secret'),
  },
  change: (core, request) => core.webhookEndpoints.rotateWebhookSecret(request),
  lines: keyLines,
})

const ping = action({
  text: 'Sends an event of the type webhook.ping to one endpoint. Its log shows the answer.',
  options: endpoint,
  change: async (core, request) =>
    (await core.webhookEndpoints.pingWebhookEndpoint(request)).delivery,
  lines: (delivery, { endpointId }) => [
    `queued: ${delivery?.eventId ?? ''}`,
    `see: ./tollgate webhook-endpoint deliveries ${endpointId}`,
  ],
})

const deliveryTable = (deliveries: readonly WebhookDelivery[]): string[] =>
  table(
    deliveries,
    [
      'id',
      ['created', 'createdAt'],
      ['type', 'eventType'],
      'status',
      'attempts',
      ['last answer', ({ lastStatus, lastError }) => lastError ?? lastStatus],
      ['ms', 'lastDurationMs'],
      ['next attempt', 'nextAttemptAt'],
    ],
    'no such deliveries in the last 30 days',
  )

const deliveries = action({
  text: 'Lists the deliveries of the last 30 days to an endpoint, newest first.',
  options: {
    ...endpoint,
    status: text('STATUS', { meaning: 'pending, delivered or failed.' }),
    eventType: text('TYPE', { flag: 'event' }),
    eventId: text('ID'),
    since: text('INSTANT'),
    until: text('INSTANT'),
    ...page,
  },
  read: (core, request) => core.webhookEndpoints.listWebhookDeliveries(request),
  lines: (answer) => deliveryTable(answer.deliveries),
})

const replay = action({
  text: 'Sends one delivery again, or all failed ones of events since an instant. They keep their event ids.',
  options: {
    ...endpoint,
    deliveryId: text('ID', { flag: 'delivery' }),
    failedSince: text('INSTANT'),
  },
  oneOf: [['deliveryId', 'failedSince']],
  change: (core, request) => core.webhookEndpoints.replayWebhookDeliveries(request),
  lines: ({ replayed }) => [`queued again: ${replayed}`],
})

export const webhookEndpoint = createCommand('webhook-endpoint', {
  summary: "manages the endpoints that receive an app's events, and their log",
  examples: [
    './tollgate webhook-endpoint create https://shop.example/hooks --event balance.low --event access.lost --app app_0123456789abcdef01234567',
    './tollgate webhook-endpoint deliveries 0198c2a4-7d1e-7b3a-9c5f-0000000000b1 --status failed --app app_0123456789abcdef01234567',
  ],
  actions: { list, create, update, delete: remove, rotate, ping, deliveries, replay },
})
