import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/owners.ts'
import { microsDown, microsThatAddUp, microsUp } from '../../lib/money.ts'
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

function toAccount({ period, charges, ...account }: OwnerAccount): pb.OwnerAccount {
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
  }
}
