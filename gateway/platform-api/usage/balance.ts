import { Type } from 'typebox'
import type { Balance as BalanceMessage } from '../../../proto/gen/es/tollgate/balances/v1/allowances_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import {
  AppParams,
  FeatureBalances,
  Instant,
  Micros,
  allowanceAmounts,
  canSpend,
  required,
  spendRefusal,
} from '../schemas.ts'
import { type Address, addresses, asOf, refuseOtherUser } from './query.ts'

const Balance = named(
  Type.Object({
    externalUserId: Type.String(),
    balanceUsdMicros: allowanceAmounts.balanceUsdMicros,
    remainingUsdMicros: Micros('The money that may pay for any call, minus held money.'),
    consumedUsdMicros: allowanceAmounts.consumedUsdMicros,
    lifetimeGrantedUsdMicros: allowanceAmounts.lifetimeGrantedUsdMicros,
    hasAccess: allowanceAmounts.hasAccess,
    canSpend: Type.Optional(canSpend),
    spendRefusal,
    featureBalances: FeatureBalances,
    unpricedCount: Type.Integer({
      description: 'Tickets that wait for a rate; the figures do not include them.',
    }),
    asOf: Type.Optional(Instant('The past instant of the figures, if the request had one.')),
  }),
  'Balance',
)

const BalanceQuery = Type.Object({ externalUserId: required('Whose balance.'), asOf })

/**
 * Balance routes: of an app's user, at the current and the deprecated path, and of the token's
 * user.
 */
export function balanceRoutes(app: App): void {
  addSchemas(app, [Balance])
  for (const address of addresses('usage/balance', 'getBalance')) readBalance(app, address)
  readOwnBalance(app)
}

function readBalance(app: App, address: Address): void {
  get({
    ...address,
    summary: "A user's balance",
    description:
      'Returns what one user may still spend, now or, with asOf, at a past instant. remainingUsdMicros is the balance minus the money held for running calls, and hasAccess is true if it is above 0. canSpend is also true if the user may spend on credit; it is absent with asOf.',
    tags: ['usage'],
    params: AppParams,
    querystring: BalanceQuery,
    response: { 200: ref(Balance) },
    handler: async ({ params, query, core }) => {
      const { balance } = await core.allowances.getBalance({ ...params, ...query })
      return toBalance(requireField(balance, 'balance'))
    },
  })(app)
}

const readOwnBalance = get({
  url: '/api/v1/user/usage/balance',
  guard: { kind: 'user' },
  metered: true,
  operationId: 'getOwnBalance',
  summary: 'Own balance',
  description:
    'Returns what the user of the token may still spend, now or, with asOf, at a past instant.',
  tags: ['end user'],
  querystring: Type.Object({ asOf }),
  response: { 200: ref(Balance) },
  self: {
    operationId: 'getBalanceOfMe',
    summary: 'What you may still spend',
    description: 'Returns what you may still spend in the app.',
    params: AppParams,
  },
  handler: async ({ query, core }) => {
    refuseOtherUser(query)
    const { balance } = await core.allowances.getOwnBalance({ asOf: query.asOf })
    return toBalance(requireField(balance, 'balance'))
  },
})

const toBalance = ({ spendRefusal: refusal, ...balance }: BalanceMessage) => ({
  ...balance,
  ...(refusal ? { spendRefusal: refusal } : {}),
  unpricedCount: balance.unpricedTickets,
})
