import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { unary } from '../../../core/lib/grpc.ts'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import { UsageServiceClient } from '../../../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type TestCore, outcome, startTestCore } from '../support.ts'

/** Services of the deployment's operator that read from core with CORE_TOKEN_SERVICE (decision 71). */

const token = registerSecret('token-of-a-service-0123456789-abcdefghij')

let core: TestCore
let service: CoreClient
let clientId = ''

beforeAll(async () => {
  core = await startTestCore({ CORE_TOKEN_SERVICE: token })
  service = connectCore({ target: core.core.target, token, tls: undefined })
  const app = await core.newApp({ starterUsdMicros: '5000000' })
  ;({ clientId } = app)
  await core.as(app.basic).upsertUser({ clientId, externalUserId: 'ada' })
})
afterAll(async () => {
  service.close()
  await core.stop()
})

const options = { deadlineMs: 5_000, headers: { [serviceTokenHeader]: token } }

describe('an internal service', () => {
  it('reads users, balances, usage, plans and subscriptions of any app', async () => {
    const ada = { clientId, externalUserId: 'ada' }
    expect((await service.users.getUser(ada)).user).toMatchObject({ externalUserId: 'ada' })
    expect((await service.users.listUsers({ clientId, limit: 0 })).users).toHaveLength(1)
    expect((await service.allowances.getBalance(ada)).balance).toMatchObject({
      balanceUsdMicros: '5000000',
    })
    expect((await service.allowances.getAllowance(ada)).allowance).toBeDefined()
    const usages = new UsageServiceClient(core.core.target, credentials.createInsecure())
    const query = unary(usages.queryUsage.bind(usages))
    const { usage } = await query({ clientId, includeRetail: false }, options).finally(() =>
      usages.close(),
    )
    expect(usage?.totals).toMatchObject({ requestCount: '0' })
    expect((await service.plans.listPlans({ clientId })).plans).not.toEqual([])
    expect((await service.subscriptions.getSubscription(ada)).state).toBeDefined()
    expect(await outcome(service.tickets.explainTicket({ clientId, eventId: 'none' }))).toBe(
      'NOT_FOUND',
    )
  })

  it('learns of an unknown app or user like an operator', async () => {
    const unknown = { clientId: `app_${'0'.repeat(24)}`, externalUserId: 'ada' }
    expect(await outcome(service.users.getUser(unknown))).toBe('NOT_FOUND')
    expect(await outcome(service.allowances.getBalance({ clientId, externalUserId: 'bob' }))).toBe(
      'NOT_FOUND',
    )
  })

  it('changes nothing and reads nothing else', async () => {
    const grant = { clientId, externalUserId: 'ada', amountUsdMicros: '1', source: 'manual' }
    const calls = [
      service.allowances.createGrant(grant),
      service.apps.createApp({ name: 'Mine' }),
      service.subscriptions.updateSubscription({ clientId, externalUserId: 'ada', planId: 'x' }),
      service.apps.listApps({ limit: 0 }),
      service.outbox.getOutbox({}),
    ]
    for (const call of calls) expect(await outcome(call)).toBe('SERVICE_ROLE_FORBIDDEN')
  })
})
