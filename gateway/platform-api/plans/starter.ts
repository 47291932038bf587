import type { Plan as PlanMessage } from '../../../proto/gen/es/tollgate/plans/v1/plans_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, put } from '../../http/endpoint.ts'
import { ref } from '../../http/schemas.ts'
import { AppParams } from '../schemas.ts'
import { toPlan } from './render.ts'
import { StarterBody, StarterPlan } from './schemas.ts'

const url = '/api/v1/apps/:clientId/starter-plan'
const tags = ['plans']

/** The Starter plan, which new users get. */
export function starterRoutes(app: App): void {
  readStarter(app)
  changeStarter(app)
}

const readStarter = get({
  url,
  guard: { kind: 'hidden_member_read' },
  operationId: 'getStarterPlan',
  summary: 'The plan of new users',
  description: 'Returns the Starter plan of the app, which cannot be deleted or replaced.',
  tags,
  params: AppParams,
  response: { 200: ref(StarterPlan) },
  handler: async ({ params, core }) => answerOf((await core.plans.getStarterPlan(params)).plan),
})

const changeStarter = put({
  url,
  guard: { kind: 'hidden_member_edit' },
  operationId: 'updateStarterPlan',
  summary: 'Change the Starter plan',
  description:
    'Changes the usage that Starter includes in each period. Users keep the credit that they have: a decrease applies from their next period.',
  tags,
  params: AppParams,
  coreBody: StarterBody,
  response: { 200: ref(StarterPlan) },
  handler: async ({ params, body, core }) => {
    const { plan } = await core.plans.updateStarterPlan({
      ...params,
      planJson: JSON.stringify(body),
    })
    return answerOf(plan)
  },
})

function answerOf(message: PlanMessage | undefined) {
  const plan = toPlan(requireField(message, 'plan'))
  const { includedUsdMicros, openmeterPlanId, syncError } = plan
  return { success: true, plan, includedUsdMicros, openmeterPlanId, syncError }
}
