import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant, pageQuery, text } from '../schemas.ts'
import { operateRules, operateUrl } from './rules.ts'

const url = `${operateUrl}/processor-differences`
const optional = (description: string) => Type.Optional(Type.String({ description }))

const ProcessorDifference = named(
  Type.Object({
    id: Type.String(),
    subject: Type.String({ description: 'payment, refund, dispute, fee or earning.' }),
    problem: Type.String({
      description: 'missing_here, missing_there, amount, currency or unknown.',
    }),
    plane: Type.String({ description: 'live or test.' }),
    account: optional("The processor's account; absent for the platform's own."),
    clientId: optional('The app of the account.'),
    processorPaymentId: Type.String(),
    paymentId: optional('Our payment, if there is one.'),
    ours: optional('Our amount in the smallest unit of the currency.'),
    theirs: optional("The processor's amount."),
    currency: Type.String(),
    foundAt: Instant('When it was found.'),
    resolvedAt: Type.Optional(Instant('When it was resolved.')),
    resolution: optional('What was done about it.'),
    resolvedBy: optional('Who resolved it; absent if a later comparison did.'),
  }),
  'ProcessorDifference',
)
const ProcessorDifferenceList = named(
  Type.Object({
    differences: Type.Array(ref(ProcessorDifference), { description: 'The newest first.' }),
    nextCursor: Type.Optional(text('For the next page.')),
  }),
  'ProcessorDifferenceList',
)

/** Differences between the payment processor and our payments (docs/payments.md). */
export function differenceRoutes(app: App): void {
  addSchemas(app, [ProcessorDifference, ProcessorDifferenceList])
  listProcessorDifferences(app)
  resolveProcessorDifference(app)
}

const listProcessorDifferences = get({
  ...operateRules,
  url,
  operationId: 'listProcessorDifferences',
  summary: 'List differences between the processor and our payments',
  description: 'Lists the differences that comparisons have found; by default the open ones.',
  querystring: Type.Object({
    ...pageQuery,
    all: Type.Optional(
      Type.Unsafe<'true'>({ type: 'string', enum: ['true'], description: 'also resolved ones' }),
    ),
  }),
  response: { 200: ref(ProcessorDifferenceList) },
  handler: async ({ query: { limit, cursor, all }, core }) =>
    core.processorReconciliation.listProcessorDifferences({
      open: all === undefined,
      limit: Number(limit ?? 0),
      cursor,
    }),
})

const resolveProcessorDifference = post({
  ...operateRules,
  url: `${url}/:differenceId/resolve`,
  refuses: ['CONFLICT'],
  operationId: 'resolveProcessorDifference',
  summary: 'Resolve a difference',
  description: 'Records what was done about it, with the name of the platform admin.',
  params: Type.Object({
    differenceId: Type.String({ description: 'The id of the difference.' }),
  }),
  body: Type.Object(
    {
      resolution: Type.String({
        minLength: 1,
        maxLength: 500,
        pattern: '\\S',
        description: 'What was done about it.',
      }),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(ProcessorDifference) },
  handler: async ({ params, body, core }) => {
    const request = { ...body, id: params.differenceId }
    const { difference } = await core.processorReconciliation.resolveProcessorDifference(request)
    return requireField(difference, 'difference')
  },
})
