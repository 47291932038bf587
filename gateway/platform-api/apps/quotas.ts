import { Type } from 'typebox'
import type {
  GetNetworkQuotaResponse,
  SetNetworkQuotaResponse,
} from '../../../proto/gen/es/tollgate/allowances/v1/quotas_pb.ts'
import type { App } from '../../http/app.ts'
import { route } from '../../http/route.ts'
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
    maxUsdMicros: Micros("Most unpaid network cost of the account's apps."),
    unpaidUsdMicros: Micros(
      'Their present unpaid network cost: booked in the last 30 days, and lent and pending money.',
    ),
  }),
  'NetworkQuota',
)

/** Quotas of credit per app, and of apps and network cost per account; for platform admins. */
export function quotaRoutes(app: App): void {
  addSchemas(app, [CreditQuota, AccountQuota, NetworkQuota])
  getCreditQuota(app)
  setCreditQuota(app)
  getAccountQuota(app)
  setAccountQuota(app)
  getNetworkQuota(app)
  setNetworkQuota(app)
}

const creditQuotaUrl = '/api/v1/quotas/credit/:clientId'

function getCreditQuota(app: App): void {
  app.get(
    creditQuotaUrl,
    route(
      { guard },
      {
        operationId: 'getCreditQuota',
        summary: "An app's quota of credit, and its use",
        description:
          "Returns the quota for credit of the allowance route, and the credit that the app's users have not spent. For platform admins.",
        tags,
        params: AppParams,
        response: { 200: ref(CreditQuota) },
      },
    ),
    async ({ params, core }) => core.quotas.getCredit(params),
  )
}

function setCreditQuota(app: App): void {
  app.put(
    creditQuotaUrl,
    route(
      { guard, amounts: ['maxUsdMicros'] },
      {
        operationId: 'setCreditQuota',
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
      },
    ),
    async ({ params, body, core }) =>
      core.quotas.setCredit({ ...params, maxUsdMicros: body.maxUsdMicros ?? undefined }),
  )
}

const accountQuotaUrl = '/api/v1/quotas/accounts'

function getAccountQuota(app: App): void {
  app.get(
    accountQuotaUrl,
    route(
      { guard, refuses: ['NOT_FOUND'] },
      {
        operationId: 'getAccountQuota',
        summary: "An account's quota of apps, and its use",
        description:
          'Returns the number of apps that the account owns and may own; deleted apps do not count. For platform admins.',
        tags,
        querystring: Type.Object({ email: required('E-mail address of the account.') }),
        response: { 200: ref(AccountQuota) },
      },
    ),
    async ({ query, core }) => core.quotas.getAccount(query),
  )
}

function setAccountQuota(app: App): void {
  app.put(
    accountQuotaUrl,
    route(
      { guard, refuses: ['NOT_FOUND'] },
      {
        operationId: 'setAccountQuota',
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
      },
    ),
    async ({ body: { email, appsMax }, core }) =>
      core.quotas.setAccount({ email, appsMax: appsMax ?? undefined }),
  )
}

const networkQuotaUrl = '/api/v1/quotas/network'

function getNetworkQuota(app: App): void {
  app.get(
    networkQuotaUrl,
    route(
      { guard, refuses: ['NOT_FOUND'] },
      {
        operationId: 'getNetworkQuota',
        summary: "An owner's bound of unpaid network cost, and its use",
        description:
          "Returns the bound and the present unpaid network cost of the owner's apps; platform-owned apps do not count. For platform admins.",
        tags,
        querystring: Type.Object({ email: required('E-mail address of the account.') }),
        response: { 200: ref(NetworkQuota) },
      },
    ),
    async ({ query, core }) => renderNetwork(await core.quotas.getNetwork(query)),
  )
}

function setNetworkQuota(app: App): void {
  app.put(
    networkQuotaUrl,
    route(
      { guard, refuses: ['NOT_FOUND'], amounts: ['maxUsdMicros'] },
      {
        operationId: 'setNetworkQuota',
        summary: "Change an owner's bound of unpaid network cost",
        description: 'Changes the bound and writes it to the audit log. For platform admins.',
        tags,
        body: Type.Object(
          {
            email: required('E-mail address of the account.'),
            maxUsdMicros: nullable({
              pattern: '^(0|[1-9][0-9]{0,15})$',
              description: "null for the deployment's; at most 10^15",
            }),
          },
          { additionalProperties: false },
        ),
        response: { 200: ref(NetworkQuota) },
      },
    ),
    async ({ body: { email, maxUsdMicros }, core }) =>
      renderNetwork(
        await core.quotas.setNetwork({ email, maxUsdMicros: maxUsdMicros ?? undefined }),
      ),
  )
}

const renderNetwork = ({ quota }: GetNetworkQuotaResponse | SetNetworkQuotaResponse) => ({
  email: quota?.email ?? '',
  maxUsdMicros: quota?.maxUsdMicros ?? '',
  unpaidUsdMicros: quota?.unpaidUsdMicros ?? '',
})
