import { Type } from 'typebox'
import { Scope } from '../../../proto/scopes.ts'
import type { Limits as LimitsMessage } from '../../../proto/gen/es/tollgate/balances/v1/limits_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, put } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { KeyParams, Success, UserParams, nullable, oneOf } from '../schemas.ts'

const userUrl = '/api/v1/apps/:clientId/users/:externalUserId/limits'
const keyUrl = '/api/v1/apps/:clientId/users/:externalUserId/keys/:keyId/limits'
const tags = ['limits']
const guards = {
  read: { kind: 'm2m', scope: Scope.usersRead },
  write: { kind: 'm2m', scope: Scope.usersWrite },
} as const

const sessionTypes = ['live', 'lv2v', 'fixed'] as const
const amounts = ['usdMicrosPerDay', 'usdMicrosPerSession']

const day = 'The most that may be spent on a day (UTC).'
const session = 'The most that may be spent in one session.'
const calls = 'Calls that are allowed in each minute of the clock.'
const sessions = 'Sessions at the same time: those with a call within the last 60 seconds.'
const prices = 'The highest prices. If several match a call, the lowest applies.'
const maxWei = 'wei for one second (live), 720p pixel second (lv2v) or unit (fixed)'

const nullableCount = (description: string) =>
  Type.Unsafe<number | null>({ type: 'integer', nullable: true, description })

const Limits = named(
  Type.Object(
    {
      usdMicrosPerDay: nullable({ description: day }),
      usdMicrosPerSession: nullable({ description: session }),
      callsPerMinute: nullableCount(calls),
      concurrentSessions: nullableCount(sessions),
      maxPrices: Type.Array(
        Type.Object({
          type: oneOf(sessionTypes, 'Type of the session.'),
          app: nullable({ description: 'Application of the session; null for every one.' }),
          maxWei: Type.String({ description: maxWei }),
        }),
        { description: prices },
      ),
    },
    { description: 'null without such a limit.' },
  ),
  'Limits',
)

const amount = (description: string) =>
  Type.Optional(
    Type.String({
      pattern: '^[1-9][0-9]{0,15}$',
      description: `a positive integer in a string, at most 1000000000000000 (10^15). ${description}`,
    }),
  )
const count = (maximum: number, description: string) =>
  Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum,
      description: `an integer from 1 to ${maximum}. ${description}`,
    }),
  )

const LimitsBody = Type.Object(
  {
    usdMicrosPerDay: amount(day),
    usdMicrosPerSession: amount(session),
    callsPerMinute: count(1_000_000, calls),
    concurrentSessions: count(10_000, sessions),
    maxPrices: Type.Optional(
      Type.Array(
        Type.Object(
          {
            type: oneOf(sessionTypes, 'Type of the session.'),
            app: Type.Optional(
              Type.String({
                maxLength: 200,
                description: 'Application of the session; every one when absent.',
              }),
            ),
            maxWei: Type.String({
              pattern: '^[1-9][0-9]{0,18}$',
              description: `a positive integer in a string: ${maxWei}`,
            }),
          },
          { additionalProperties: false },
        ),
        { maxItems: 50, description: `a list of at most 50. ${prices}` },
      ),
    ),
  },
  { additionalProperties: false },
)

/** Limits that owners set for a user or for one of its keys. */
export function limitRoutes(app: App): void {
  addSchemas(app, [Limits])
  limitsAt(app, { url: userUrl, params: UserParams, whose: "a user's", noun: 'UserLimits' })
  limitsAt(app, { url: keyUrl, params: KeyParams, whose: "a key's", noun: 'KeyLimits' })
}

interface Address {
  readonly url: string
  readonly params: typeof UserParams | typeof KeyParams
  readonly whose: string
  /** Part of its operation ids. */
  readonly noun: string
}

function limitsAt(app: App, at: Address): void {
  readLimits(app, at)
  replaceLimits(app, at)
  removeLimits(app, at)
}

function readLimits(app: App, { url, params, whose, noun }: Address): void {
  get({
    url,
    guard: guards.read,
    members: 'read',
    operationId: `get${noun}`,
    summary: `Read ${whose} limits`,
    description:
      'Returns the limits; null where a limit is not set. A call must keep the limits of its key and those of its user.',
    tags,
    params,
    response: { 200: ref(Limits) },
    handler: async ({ params: subject, core }) =>
      toLimits((await core.limits.getLimits(subject)).limits),
  })(app)
}

function replaceLimits(app: App, { url, params, whose, noun }: Address): void {
  put({
    url,
    guard: guards.write,
    members: 'edit',
    amounts,
    operationId: `put${noun}`,
    summary: `Replace ${whose} limits`,
    description:
      'Replaces all limits: a limit that is absent in the body is removed. The signer webhook refuses calls beyond the limits.',
    tags,
    params,
    body: LimitsBody,
    // Core requires at least one.
    documentedBody: { ...LimitsBody, minProperties: 1 },
    response: { 200: ref(Limits) },
    handler: async ({ params: subject, body, core }) =>
      toLimits((await core.limits.updateLimits({ ...subject, limits: fromBody(body) })).limits),
  })(app)
}

function removeLimits(app: App, { url, params, whose, noun }: Address): void {
  del({
    url,
    guard: guards.write,
    members: 'edit',
    operationId: `delete${noun}`,
    summary: `Remove ${whose} limits`,
    description: 'Removes all limits. It also succeeds if none was set.',
    tags,
    params,
    response: { 200: ref(Success) },
    handler: async ({ params: subject, core, correlationId }) => {
      await core.limits.deleteLimits(subject)
      return { success: true, correlation_id: correlationId }
    },
  })(app)
}

const fromBody = ({ maxPrices = [], ...figures }: Type.Static<typeof LimitsBody>) => ({
  ...figures,
  maxPrices: maxPrices.map(({ type, app = '', maxWei }) => ({ type, app, maxWei })),
})

function toLimits(message: LimitsMessage | undefined) {
  const limits = requireField(message, 'limits')
  return {
    ...limits,
    maxPrices: limits.maxPrices.map((price) => ({ ...price, app: price.app || null })),
  }
}
