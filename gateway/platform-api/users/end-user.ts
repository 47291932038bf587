import { Type } from 'typebox'
import { DomainError } from '../../../proto/errors.ts'
import { present } from '../../core/client.ts'
import type { App } from '../../http/listener.ts'
import { route } from '../../http/route.ts'
import { Balance, ref } from '../schemas.ts'
import { Usage } from '../usage/schemas.ts'
import { asOf, toQuery, usageQuery } from '../usage/usage.ts'
import { toBalance, toUsage } from '../usage/reply.ts'

const tags = ['end user']
const rules = { guard: { kind: 'user' }, metered: true } as const

/** What the holder of a user token may ask about themselves. */
export function endUserRoutes(app: App): void {
  app.get(
    '/api/v1/user/usage',
    route(rules, {
      summary: 'Own usage',
      tags,
      querystring: Type.Object(usageQuery),
      response: { 200: ref(Usage) },
    }),
    async ({ query, core }) => {
      refuseOtherUser(query)
      const { usage } = await core.usage.queryOwn(toQuery(query))
      return toUsage(present(usage, 'usage'), query)
    },
  )

  app.get(
    '/api/v1/user/usage/balance',
    route(rules, {
      summary: 'Own balance',
      tags,
      querystring: Type.Object({ asOf }),
      response: { 200: ref(Balance) },
    }),
    async ({ query, core }) => {
      refuseOtherUser(query)
      const { balance } = await core.allowances.ownBalance({ asOf: query.asOf })
      return toBalance(present(balance, 'balance'))
    },
  )
}

/** Whoever names a user expects that user's figures: refused, not answered with others (facts 6.3). */
export function refuseOtherUser(query: object): void {
  const named = ['userId', 'endUserId', 'externalUserId', 'external_user_id'].find((name) =>
    Object.hasOwn(query, name),
  )
  if (named === undefined) return
  throw new DomainError(
    'REQUEST_INVALID',
    `${named} is not allowed; the answer is about the token's user`,
  )
}
