import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant, pageQuery, text } from '../schemas.ts'
import { operateRules, operateUrl } from './rules.ts'

const Attos = (description: string) =>
  Type.String({ pattern: '^-?[0-9]+$', description: `${description} In 10^-18 USD.` })

const HoldList = named(
  Type.Object({
    users: Type.Array(
      Type.Object({
        clientId: Type.String(),
        externalUserId: Type.String(),
        balanceUsdAttos: Attos('Including what is held.'),
        lentUsdAttos: Attos('Lent to sidecars.'),
        pendingUsdAttos: Attos('Bounds of allowed calls without a ticket.'),
        pendingCount: Type.String({ description: 'Number of those calls.' }),
        leases: Type.Array(
          Type.Object({
            id: Type.String(),
            sidecarId: Type.String(),
            amountUsdAttos: Attos('All money lent under it.'),
            usedUsdAttos: Attos('What the sidecar has spent of it.'),
            endsAt: Instant('Its end; a lease beyond its end is an orphan.'),
            recalled: Type.Boolean({ description: 'Whether core wants it back.' }),
          }),
        ),
      }),
    ),
    nextCursor: Type.Optional(text('For the next page.')),
  }),
  'HoldList',
)

/** Users' money that is lent or pending (docs/escrow.md). */
export function holdRoutes(app: App): void {
  addSchemas(app, [HoldList])
  listHolds(app)
}

const listHolds = get({
  ...operateRules,
  url: `${operateUrl}/holds`,
  refuses: ['NOT_FOUND'],
  operationId: 'listHolds',
  summary: 'List users with held money',
  description: 'Lists what sidecars may spend and what waits for tickets, by user.',
  querystring: Type.Object({
    ...pageQuery,
    clientId: Type.Optional(text('only this app')),
    externalUserId: Type.Optional(text('only this user of the app')),
  }),
  response: { 200: ref(HoldList) },
  handler: async ({ query: { limit, ...filter }, core }) =>
    core.holds.listHolds({ ...filter, limit: Number(limit ?? 0) }),
})
