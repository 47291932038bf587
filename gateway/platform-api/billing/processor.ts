import { Type } from 'typebox'
import type { Admission as AdmissionMessage } from '../../../proto/gen/es/tollgate/billing/v1/billing_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, post } from '../../http/endpoint.ts'
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
      "The app's own account at the payment processor. pending: it may not take payments yet, or lacks details.",
    ),
    processor: nullable({
      description: "The deployment's processor, simulated or stripe; null if it has none.",
    }),
    plane: oneOf(
      ['live', 'test'],
      'Test apps use the test plane of the processor, others the live one.',
    ),
    chargesEnabled: Type.Boolean({ description: 'Whether the account may take payments.' }),
    payoutsEnabled: Type.Boolean({
      description: 'Whether the processor pays the account out; not needed to sell.',
    }),
    detailsSubmitted: Type.Boolean({
      description: "Whether the owner has submitted the account's details.",
    }),
    openmeterStripeAppId: nullable({ description: 'Always null; existing clients read it.' }),
    openmeterBillingProfileId: nullable({ description: 'Always null; existing clients read it.' }),
    defaultCurrency: Type.String(),
    connectedAt: nullable({ format: 'date-time', description: 'Null without a connection.' }),
    billingMode: oneOf(
      ['owner_rollup', 'merchant'],
      'Whether the owner pays for all users, or users pay the owner.',
    ),
    applicationFee: oneOf(
      ['none', 'owner_charge'],
      "The platform's share of users' payments: in billing mode merchant the owner charge of what they pay for.",
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

const getProcessor = get({
  url,
  guard: { kind: 'm2m_or_member' },
  operationId: 'getPaymentProcessor',
  summary: 'Whether a payment processor is connected, and what the app may do',
  description:
    "Returns the state of the app's account at the payment processor, the platform's settings of the app, and the decisions of the activation gate with the codes of its refusals.",
  tags,
  params: AppParams,
  response: { 200: ref(Processor) },
  handler: async ({ params, core }) => {
    const answer = await core.billing.getProcessor(params)
    const settings = requireField(answer.settings, 'settings')
    return {
      ...settings,
      ...answer,
      ...params,
      processor: answer.processor ?? null,
      defaultCurrency: 'USD',
      activation: {
        provisioning: toAdmission(requireField(answer.provisioning, 'provisioning')),
        selling: toAdmission(requireField(answer.selling, 'selling')),
      },
    }
  },
})

const connectProcessor = post({
  url: `${url}/connect`,
  guard: { kind: 'member_own' },
  refuses: ['PROCESSOR_NOT_CONFIGURED', 'PROCESSOR_UNREACHABLE', 'PROCESSOR_REFUSED', 'CONFLICT'],
  operationId: 'connectPaymentProcessor',
  summary: "Connect the app's own account",
  description:
    "Returns the address at which the owner completes the account at the payment processor. It expires after a few minutes; a repetition returns a new address of the same account. Only the person who started leads the connection to its end, within 15 minutes: the processor leads them back to this service, which reads the account's state.",
  tags,
  params: AppParams,
  response: { 200: ref(Connection) },
  handler: async ({ params, core }) => core.billing.connectProcessor(params),
})

const disconnectProcessor = del({
  url,
  guard: { kind: 'member_own' },
  refuses: ['CONFLICT'],
  operationId: 'disconnectPaymentProcessor',
  summary: "Disconnect the app's own account",
  description:
    'Ends the connection, if there is one. Payments that were made stay as they are. 409 while something is unpaid.',
  tags,
  params: AppParams,
  response: { 200: ref(Success) },
  handler: async ({ params, core, correlationId }) => {
    await core.billing.disconnectProcessor(params)
    return { success: true, correlation_id: correlationId }
  },
})

const toAdmission = ({ code, detail, isEnforced }: AdmissionMessage) => ({
  allowed: code === undefined || !isEnforced,
  code,
  detail: code === undefined ? null : detail,
})
