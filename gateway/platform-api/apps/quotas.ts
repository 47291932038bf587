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
    maxUsdMicros: Micros('What the app may have given its users and they have not spent.'),
    outstandingUsdMicros: Micros('What it has.'),
  }),
  'CreditQuota',
)
const AccountQuota = named(
  Type.Object({
    email: Email,
    apps: Type.Integer({ description: 'That the account owns.' }),
    appsMax: Type.Integer({ description: 'That it may own.' }),
  }),
  'AccountQuota',
)
const NetworkQuota = named(
  Type.Object({
    email: Type.String(),
    maxUsdMicros: Micros('What the apps of the account may cost the operator before it is paid.'),
    unpaidUsdMicros: Micros(
      'What they do: network cost that was booked in 30 days and is not paid, and what is lent and pending.',
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
        summary: 'How much credit an app may have given by hand, and has',
        description:
          'Credit of the allowance route that the users of the app have not spent. For platform admins.',
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
        summary: 'Change how much credit an app may have given by hand',
        description: 'Is written to the audit log of the app. For platform admins.',
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
        summary: 'How many apps an account owns and may own',
        description: 'Deleted apps do not count. For platform admins.',
        tags,
        querystring: Type.Object({ email: required('Of the account.') }),
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
        summary: 'Change how many apps an account may own',
        description: 'Apps that it owns already stay. For platform admins.',
        tags,
        body: Type.Object(
          {
            email: required('Of the account.'),
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
        summary: "What an owner's apps may cost before it is paid, and do",
        description: 'Platform-owned apps do not count. For platform admins.',
        tags,
        querystring: Type.Object({ email: required('Of the account.') }),
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
        summary: "Change what an owner's apps may cost before it is paid",
        description: 'Is written to the audit log. For platform admins.',
        tags,
        body: Type.Object(
          {
            email: required('Of the account.'),
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
