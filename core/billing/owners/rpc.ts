import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/owners.ts'
import { microsDown, microsThatAddUp, microsUp } from '../../lib/money.ts'
import type { PlanChoice } from '../../plans/subscriptions/choices.ts'
import { member, operator, orOperator } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { parseIdempotencyKey } from '../../shared/idempotency.ts'
import { toPlan, toSubscription } from '../summary/render.ts'
import type { OwnerAccount, OwnerAccountService } from './accounts.ts'

export function createOwnersRpc({
  ownerAccounts,
}: {
  readonly ownerAccounts: OwnerAccountService
}) {
  const ownerAccountService: Handlers<pb.OwnerAccountServiceServer> = {
    getOwnerAccount: rpc(
      orOperator(member('own'), operator()),
      async ({ email = '' }: pb.GetOwnerAccountRequest, caller) => ({
        account: toAccount(
          caller.kind === 'operator'
            ? await ownerAccounts.readByEmail(email)
            : await ownerAccounts.readOwn(caller),
        ),
      }),
    ),
    listOwnerPlans: rpc(member('own'), async (_: pb.ListOwnerPlansRequest, caller) => ({
      plans: (await ownerAccounts.listPlans(caller)).map(toOwnerPlan),
    })),
    updateOwnerPlan: rpc(
      member('own'),
      async (request: pb.UpdateOwnerPlanRequest, caller, { correlationId }) => {
        const { planId, timing, successUrl, cancelUrl } = request
        const idempotencyKey = parseIdempotencyKey(request.idempotencyKey)
        const body = { planId, timing, successUrl, cancelUrl, idempotencyKey }
        return { change: await ownerAccounts.updatePlan(caller, body, correlationId) }
      },
    ),
  }
  return { ownerAccountService }
}

function toAccount({ period, charges, scheduled, ...account }: OwnerAccount): pb.OwnerAccount {
  const amounts = microsThatAddUp(charges.map(({ amount }) => amount))
  return {
    email: account.email,
    externalUserId: account.externalUserId,
    platformClientId: account.platformClientId,
    balanceUsdMicros: String(microsDown(account.balance)),
    overageUsdMicros: String(microsUp(account.overage)),
    plan: period === null ? undefined : toPlan(period.plan),
    subscription: period === null ? undefined : toSubscription(period),
    charges: charges.map(({ clientId, name, tickets, amount }, i) => ({
      clientId,
      name,
      ticketCount: String(tickets),
      ownerChargeUsdMicros: String(amounts[i] ?? microsUp(amount)),
    })),
    scheduledPlan: scheduled
      ? {
          planId: scheduled.planId,
          name: scheduled.name,
          effectiveAt: scheduled.at.toISOString(),
        }
      : undefined,
  }
}

function toOwnerPlan({ newest, ...plan }: PlanChoice): pb.OwnerPlan {
  const { included, includedUnits, chargeThreshold } = newest
  return {
    id: plan.id,
    name: plan.name,
    type: newest.type,
    priceAmount: newest.priceAmount,
    priceCurrency: newest.priceCurrency,
    billingCycle: newest.billingCycle,
    includedUsdMicros: included === null ? undefined : String(microsDown(included)),
    includedUnits: includedUnits?.toString(),
    chargeThresholdUsdMicros:
      chargeThreshold === null ? undefined : String(microsDown(chargeThreshold)),
    isStarter: plan.isStarterDefault,
    needsCard: plan.needsCard,
  }
}
