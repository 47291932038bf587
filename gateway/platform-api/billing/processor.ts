import { Type } from 'typebox'
import type { Admission as AdmissionMessage } from '../../../proto/gen/es/tollgate/billing/v1/billing_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { route } from '../../http/route.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Success, WebAddress, nullable, oneOf } from '../schemas.ts'

const tags = ['billing']
const url = '/api/v1/apps/:clientId/billing/processor'

const Admission = named(
  Type.Object({
    allowed: Type.Boolean({ description: 'False only if the gate refuses.' }),
    code: nullable({
      description: "The code of the refusal's problem document; also set if the gate only logs.",
    }),
    detail: nullable({ description: 'A text for people.' }),
  }),
  'Admission',
)

export const Percent = (description: string) =>
  Type.Unsafe<number | null>({
    type: 'number',
    minimum: 0,
    maximum: 100,
    nullable: true,
    description,
  })

const Processor = named(
  Type.Object({
    clientId: Type.String(),
    status: oneOf(
      ['disconnected', 'pending', 'connected'],
      "The app's own account at the payment processor. pending: it may not take payments yet.",
    ),
    openmeterStripeAppId: nullable({ description: 'Always null; existing clients read it.' }),
    openmeterBillingProfileId: nullable({ description: 'Always null; existing clients read it.' }),
    defaultCurrency: Type.String(),
    connectedAt: nullable({ format: 'date-time', description: 'Null without a connection.' }),
    billingMode: oneOf(
      ['owner_rollup', 'merchant'],
      'Whether the owner pays for all users, or users pay the owner.',
    ),
    endUserCap: Type.Integer({ description: 'Active end users that the app may have.' }),
    isPlatformOwned: Type.Boolean({ description: "One of the platform's own apps." }),
    platformCutPercent: Percent(
      "The platform's cut of network fees; null when none is configured.",
    ),
    activation: Type.Object(
      { provisioning: ref(Admission), selling: ref(Admission) },
      {
        description:
          "The activation gate's decisions about one more user, and about a plan with a price.",
      },
    ),
  }),
  'PaymentProcessor',
)

const Connection = named(
  Type.Object({ url: WebAddress('Address at which the owner connects the account.') }),
  'ProcessorConnection',
)

/** An app's connection to the payment processor. */
export function processorRoutes(app: App): void {
  addSchemas(app, [Admission, Processor, Connection])
  getProcessor(app)
  connectProcessor(app)
  disconnectProcessor(app)
}

function getProcessor(app: App): void {
  app.get(
    url,
    route(
      { guard: { kind: 'm2m_or_member' } },
      {
        operationId: 'getPaymentProcessor',
        summary: 'Whether a payment processor is connected, and what the app may do',
        description:
          "Returns the state of the app's account at the payment processor, the platform's settings of the app, and the decisions of the activation gate with the codes of its refusals.",
        tags,
        params: AppParams,
        response: { 200: ref(Processor) },
      },
    ),
    async ({ params, core }) => {
      const answer = await core.billing.getProcessor(params)
      const settings = requireField(answer.settings, 'settings')
      return {
        clientId: params.clientId,
        status: answer.status,
        openmeterStripeAppId: null,
        openmeterBillingProfileId: null,
        defaultCurrency: 'USD',
        connectedAt: answer.connectedAt ?? null,
        billingMode: settings.billingMode,
        endUserCap: settings.endUserCap,
        isPlatformOwned: settings.isPlatformOwned,
        platformCutPercent: toPercent(settings.platformCutPercent),
        activation: {
          provisioning: toAdmission(requireField(answer.provisioning, 'provisioning')),
          selling: toAdmission(requireField(answer.selling, 'selling')),
        },
      }
    },
  )
}

function connectProcessor(app: App): void {
  app.post(
    `${url}/connect`,
    route(
      { guard: { kind: 'member_own' }, refuses: ['PROCESSOR_NOT_CONFIGURED'] },
      {
        operationId: 'connectPaymentProcessor',
        summary: "Connect the app's own account",
        description: 'Returns 503: this version has no payment processor to connect an account to.',
        tags,
        params: AppParams,
        response: { 200: ref(Connection) },
      },
    ),
    async ({ params, core }) => {
      const { url: address } = await core.billing.connectProcessor(params)
      return { url: address }
    },
  )
}

function disconnectProcessor(app: App): void {
  app.delete(
    url,
    route(
      { guard: { kind: 'member_own' } },
      {
        operationId: 'disconnectPaymentProcessor',
        summary: "Disconnect the app's own account",
        description: 'Ends the connection, if there is one.',
        tags,
        params: AppParams,
        response: { 200: ref(Success) },
      },
    ),
    async ({ params, core, correlationId }) => {
      await core.billing.disconnectProcessor(params)
      return { success: true, correlation_id: correlationId }
    },
  )
}

const toAdmission = ({ code, detail, isEnforced }: AdmissionMessage) => ({
  allowed: code === undefined || !isEnforced,
  code: code ?? null,
  detail: code === undefined ? null : detail,
})

/** Returns a percentage with at most two decimals, which a double represents accurately enough. */
export const toPercent = (decimal: string | undefined): number | null =>
  decimal === undefined ? null : Number(decimal)
