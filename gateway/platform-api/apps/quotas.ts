import { requireField } from '../../core/client.ts'
import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { get, put } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Email, Micros, nullable, required } from '../schemas.ts'

const guard = { kind: 'platform_admin' } as const
const tags = ['apps']

const CreditQuota = named(
  Type.Object({
    clientId: Type.String(),
    maxUsdMicros: Micros('Most credit that the app may have given and its users have not spent.'),
    outstandingUsdMicros: Micros('Credit that its users have not spent.'),
  }),
  'CreditQuota',
)
const AccountQuota = named(
  Type.Object({
    email: Email,
    apps: Type.Integer({ description: 'Number of apps that the account owns.' }),
    appsMax: Type.Integer({ description: 'Number of apps that it may own.' }),
  }),
  'AccountQuota',
)
const NetworkQuota = named(
  Type.Object({
    email: Type.String(),
    maxUsdMicros: Micros('Balance and credit line of the owner account.'),
    unpaidUsdMicros: Micros(
      'What the apps hold of it: lent and pending money, at network price with the cut.',
    ),
  }),
  'NetworkQuota',
)

/** Quotas of credit per app and of apps per account, and what owners' accounts can pay for; for platform admins. */
export function quotaRoutes(app: App): void {
  addSchemas(app, [CreditQuota, AccountQuota, NetworkQuota])
  getCreditQuota(app)
  updateCreditQuota(app)
  getAccountQuota(app)
  updateAccountQuota(app)
  getNetworkQuota(app)
}

const creditQuotaUrl = '/api/v1/quotas/credit/:clientId'

const getCreditQuota = get({
  url: creditQuotaUrl,
  guard,
  operationId: 'getCreditQuota',
  summary: "An app's quota of credit, and its use",
  description:
    "Returns the quota for credit of the allowance route, and the credit that the app's users have not spent. For platform admins.",
  tags,
  params: AppParams,
  response: { 200: ref(CreditQuota) },
  handler: async ({ params, core }) => core.creditQuotas.getCreditQuota(params),
})

const updateCreditQuota = put({
  url: creditQuotaUrl,
  guard,
  amounts: ['maxUsdMicros'],
  operationId: 'updateCreditQuota',
  summary: "Change an app's quota of credit",
  description: "Changes the quota and writes it to the app's audit log. For platform admins.",
  tags,
  params: AppParams,
  body: Type.Object(
    {
      maxUsdMicros: nullable({
        pattern: '^(0|[1-9][0-9]{0,15})$',
        description: "null for the deployment's; at most 10^15",
      }),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(CreditQuota) },
  handler: async ({ params, body, core }) =>
    core.creditQuotas.updateCreditQuota({
      ...params,
      maxUsdMicros: body.maxUsdMicros ?? undefined,
    }),
})

const accountQuotaUrl = '/api/v1/quotas/accounts'

const getAccountQuota = get({
  url: accountQuotaUrl,
  guard,
  refuses: ['NOT_FOUND'],
  operationId: 'getAccountQuota',
  summary: "An account's quota of apps, and its use",
  description:
    'Returns the number of apps that the account owns and may own; deleted apps do not count. For platform admins.',
  tags,
  querystring: Type.Object({ email: required('E-mail address of the account.') }),
  response: { 200: ref(AccountQuota) },
  handler: async ({ query, core }) => core.accounts.getAccountQuota(query),
})

const updateAccountQuota = put({
  url: accountQuotaUrl,
  guard,
  refuses: ['NOT_FOUND'],
  operationId: 'updateAccountQuota',
  summary: "Change an account's quota of apps",
  description:
    'Changes the number of apps that the account may own; its present apps stay. For platform admins.',
  tags,
  body: Type.Object(
    {
      email: required('E-mail address of the account.'),
      appsMax: Type.Unsafe<number | null>({
        type: 'integer',
        minimum: 0,
        maximum: 1_000_000,
        nullable: true,
        description: "null for the deployment's",
      }),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(AccountQuota) },
  handler: async ({ body: { email, appsMax }, core }) =>
    core.accounts.updateAccountQuota({ email, appsMax: appsMax ?? undefined }),
})

const networkQuotaUrl = '/api/v1/quotas/network'

const getNetworkQuota = get({
  url: networkQuotaUrl,
  guard,
  refuses: ['NOT_FOUND'],
  operationId: 'getNetworkQuota',
  summary: "What an owner's account can pay for its apps",
  description:
    "Returns balance and credit line of the owner's account, which bound what all its apps cost, and what these hold. Both are 0 before the first call. For platform admins.",
  tags,
  querystring: Type.Object({ email: required('E-mail address of the account.') }),
  response: { 200: ref(NetworkQuota) },
  handler: async ({ query, core }) =>
    requireField((await core.networkQuotas.getNetworkQuota(query)).quota, 'quota'),
})
