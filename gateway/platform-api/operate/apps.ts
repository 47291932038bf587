import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant, oneOf, pageQuery, text } from '../schemas.ts'
import { operateRules, operateUrl } from './rules.ts'

const statuses = ['active', 'disabled'] as const

const EveryApp = named(
  Type.Object({
    clientId: Type.String(),
    name: Type.String(),
    status: oneOf(statuses, 'A disabled app is refused everywhere.'),
    createdAt: Instant('When it was created.'),
    isTest: Type.Boolean({ description: 'Whether it is a test app with a clock.' }),
    isPlatformApp: Type.Boolean({ description: 'Whether owners are its end users.' }),
    ownerEmails: Type.Array(Type.String(), { description: 'The first ten owners.' }),
  }),
  'EveryApp',
)
const EveryAppList = named(
  Type.Object({
    apps: Type.Array(ref(EveryApp), { description: 'The oldest first.' }),
    nextCursor: Type.Optional(text('For the next page.')),
  }),
  'EveryAppList',
)

/** All apps of the deployment. */
export function everyAppRoutes(app: App): void {
  addSchemas(app, [EveryApp, EveryAppList])
  listEveryApp(app)
}

const listEveryApp = get({
  ...operateRules,
  url: `${operateUrl}/apps`,
  operationId: 'listEveryApp',
  summary: 'List all apps of the deployment',
  description: 'Lists the apps that are not deleted, with their owners.',
  querystring: Type.Object({
    ...pageQuery,
    search: Type.Optional(
      Type.String({
        maxLength: 200,
        description: 'only the app with this client id, and apps with this text in their names',
      }),
    ),
  }),
  response: { 200: ref(EveryAppList) },
  handler: async ({ query: { limit, ...filter }, core }) => {
    const { apps, nextCursor } = await core.apps.listApps({ ...filter, limit: Number(limit ?? 0) })
    return {
      nextCursor,
      apps: apps.map((app) => ({
        ...app,
        status: requireField(
          statuses.find((status) => status === app.status),
          'status',
        ),
      })),
    }
  },
})
