import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { get, ownAppsUrl } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant, nullable, oneOf, pageQuery } from '../schemas.ts'
import { ownRules } from './rules.ts'

const OwnApp = named(
  Type.Object({
    clientId: Type.String({ description: 'The app.' }),
    appName: Type.String(),
    status: oneOf(['active', 'inactive'], 'inactive: the app has ended your access.'),
    createdAt: Instant('Your first login to the app.'),
    deactivatedAt: nullable({ format: 'date-time' }),
    clockAheadSeconds: Type.Number({
      description: 'By how much the clock of a test app is ahead of the real time; 0 for others.',
    }),
  }),
  'AppInUse',
)
const OwnAppList = named(
  Type.Object({ apps: Type.Array(ref(OwnApp)), nextCursor: Type.Optional(Type.String()) }),
  'AppInUseList',
)

/** The apps that a person uses: those that it has logged in to. */
export function ownAppRoutes(app: App): void {
  addSchemas(app, [OwnApp, OwnAppList])
  get({
    ...ownRules,
    url: ownAppsUrl,
    guard: { kind: 'session' },
    operationId: 'listAppsInUse',
    summary: 'The apps that you use',
    description:
      'Lists the apps that you have logged in to, in the order of your first login, in pages. In each you are a user of your own.',
    querystring: Type.Object(pageQuery),
    response: { 200: ref(OwnAppList) },
    handler: async ({ query: { limit, cursor }, core }) => {
      const page = { limit: Number(limit ?? 0), cursor }
      const { users, nextCursor } = await core.users.listOwnUsers(page)
      return { apps: users, nextCursor }
    },
  })(app)
}
