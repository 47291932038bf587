import { type Static, Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, put } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, oneOf } from '../schemas.ts'
import { Percent } from './processor.ts'

const tags = ['billing']
const url = '/api/v1/apps/:clientId/billing/settings'
const modes = ['owner_rollup', 'merchant'] as const

export const BillingSettings = named(
  Type.Object({
    clientId: Type.String(),
    billingMode: oneOf(modes, 'Whether the owner pays for all users, or users pay the owner.'),
    endUserCap: Type.Integer({ description: 'Active end users that the app may have.' }),
    isDefaultCap: Type.Boolean({ description: "Whether the cap is the deployment's default." }),
    isPlatformOwned: Type.Boolean({ description: "One of the platform's own apps." }),
    servesEveryApp: Type.Boolean({
      description: 'Whether its M2M client may create users of every app at the builder API.',
    }),
    platformCutPercent: Percent("The platform's cut now; null when none is configured."),
    plannedCuts: Type.Array(
      Type.Object({
        percent: Percent("The platform's cut in percent; null for none."),
        since: Instant('When it begins.'),
      }),
      { description: 'Scheduled cuts, the next one first.' },
    ),
  }),
  'BillingSettings',
)

const ChangeBody = Type.Object(
  {
    billingMode: Type.Optional(
      oneOf(modes, 'Who pays. Refused with 409 while something is unpaid.'),
    ),
    endUserCap: Type.Optional(
      Type.Unsafe<number | null>({
        type: 'integer',
        minimum: 1,
        maximum: 1_000_000,
        nullable: true,
        description: "null for the deployment's",
      }),
    ),
    isPlatformOwned: Type.Optional(Type.Boolean()),
    servesEveryApp: Type.Optional(
      Type.Boolean({ description: 'Refused with 409 for an app that is not platform-owned.' }),
    ),
    platformCutPercent: Type.Optional(
      Percent(
        "The platform's cut in percent, with at most two decimals; null for none. A change takes effect a minute later.",
      ),
    ),
  },
  { additionalProperties: false },
)

/** An app's billing settings: its callers read them, owners and platform admins change them. */
export function settingsRoutes(app: App): void {
  addSchemas(app, [BillingSettings])
  get({
    url,
    guard: { kind: 'm2m_or_member' },
    operationId: 'getBillingSettings',
    summary: "The platform's settings of the app",
    description:
      "Returns the billing mode, the cap of end users, and the platform's present and scheduled cuts.",
    tags,
    params: AppParams,
    response: { 200: ref(BillingSettings) },
    handler: async ({ params, core }) =>
      requireField((await core.billing.getBillingSettings(params)).settings, 'settings'),
  })(app)
  put({
    url,
    guard: { kind: 'member_own' },
    refuses: ['CONFLICT'],
    operationId: 'updateBillingSettings',
    summary: "Change the app's billing settings",
    description:
      "Changes the settings in the body, all or none, and keeps the others. The change is written to the app's audit log. Owners change billingMode; the other settings are for platform admins.",
    tags,
    params: AppParams,
    body: ChangeBody,
    response: { 200: ref(BillingSettings) },
    handler: async ({ params, body, core }) => {
      const { settings } = await core.billing.updateBillingSettings({
        ...params,
        ...toChange(body),
      })
      return requireField(settings, 'settings')
    },
  })(app)
}

const toChange = ({ endUserCap, platformCutPercent, ...change }: Static<typeof ChangeBody>) => ({
  ...change,
  endUserCap: endUserCap === undefined ? undefined : String(endUserCap ?? 'default'),
  platformCutPercent:
    platformCutPercent === undefined ? undefined : String(platformCutPercent ?? 'none'),
})
