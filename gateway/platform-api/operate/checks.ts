import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { CorrelationId, addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant, oneOf } from '../schemas.ts'
import { operateRules, operateUrl } from './rules.ts'

const url = `${operateUrl}/checks`
const names = ['books', 'metering', 'processor'] as const
const states = ['running', 'ended', 'interrupted'] as const
const nameText =
  'books compares all that was booked with the tickets; metering our sums with the metering backend; processor payments with the payment processor.'

const CheckRun = named(
  Type.Object({
    state: oneOf(states, 'interrupted if its core has ended meanwhile.'),
    startedAt: Instant('When it was started.'),
    startedBy: Type.String({ description: 'Who started it.' }),
    endedAt: Type.Optional(Instant('When it ended.')),
    progress: Type.String({ description: 'How far it is.' }),
    summary: Type.Optional(Type.String({ description: 'What was compared.' })),
    failure: Type.Optional(Type.String({ description: 'Why it could not be completed.' })),
    findingCount: Type.Integer({ description: 'Number of differences.' }),
    findings: Type.Array(
      Type.Object({
        clientId: Type.Optional(Type.String({ description: 'The app that it concerns.' })),
        text: Type.String({ description: 'The difference in a sentence.' }),
      }),
      { description: 'At most 200 of them.' },
    ),
  }),
  'CheckRun',
)
const CheckList = named(
  Type.Object({
    checks: Type.Array(
      Type.Object({
        name: oneOf(names, nameText),
        configured: Type.Boolean({ description: 'Whether there is something to compare with.' }),
        last: Type.Optional(ref(CheckRun)),
      }),
    ),
  }),
  'CheckList',
)
const CheckStart = named(Type.Object({ correlation_id: CorrelationId }), 'CheckStart')

/** Checks that run in the background of core (docs/books.md). */
export function checkRoutes(app: App): void {
  addSchemas(app, [CheckRun, CheckList, CheckStart])
  listChecks(app)
  startCheck(app)
}

const listChecks = get({
  ...operateRules,
  url,
  operationId: 'listChecks',
  summary: 'List the checks and the last run of each',
  description: 'Returns the running or last run of each check, with its differences in sentences.',
  response: { 200: ref(CheckList) },
  handler: async ({ core }) => {
    const { checks } = await core.checks.listChecks({})
    return {
      checks: checks.map(({ last, ...check }) => ({
        ...check,
        name: requireField(
          names.find((name) => name === check.name),
          'name',
        ),
        ...(last && { last: { ...last, state: toState(last.state) } }),
      })),
    }
  },
})

const toState = (text: string): (typeof states)[number] =>
  requireField(
    states.find((state) => state === text),
    'state',
  )

const startCheck = post({
  ...operateRules,
  url: `${url}/:name/start`,
  refuses: ['CONFLICT', 'METERING_NOT_CONFIGURED', 'PROCESSOR_NOT_CONFIGURED'],
  operationId: 'startCheck',
  summary: 'Start a check',
  description:
    'Starts a run in the background, of at most 15 minutes. 409 while the same check is running.',
  params: Type.Object({ name: Type.String({ description: nameText }) }),
  response: { 202: ref(CheckStart) },
  handler: async ({ params, core, correlationId }, reply) => {
    await core.checks.startCheck(params)
    return reply.code(202).send({ correlation_id: correlationId })
  },
})
