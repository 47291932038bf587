import { afterAll, beforeAll, expect, it } from 'vitest'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { serviceToken } from '../../../core/support.ts'
import { type Real, type RealApp, newSellingApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

let real: Real
let operator: CoreClient
beforeAll(async () => {
  real = await startReal()
  operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
})
afterAll(async () => {
  operator.close()
  await real.stop()
})

const newMerchant = (name: string): Promise<RealApp> => newSellingApp({ real, operator }, name)

const get = (
  { clientId, basic }: RealApp,
  path: string,
  headers: Readonly<Record<string, string>> = { authorization: basic },
) => fetch(`${real.url}/api/v1/apps/${clientId}/billing/${path}`, { headers })

const stateOf = async (app: RealApp, query = '?externalUserId=ada') =>
  asRecord(await (await get(app, `state${query}`)).json())

it('returns the state that the wallet embeds, and is never cached', async () => {
  const app = await newMerchant('stated')
  await operator.allowances.createAdjustment({
    clientId: app.clientId,
    externalUserId: 'ada',
    amountUsdMicros: '20000000',
    reason: 'test',
    author: 'test',
  })
  const answer = await get(app, 'state?externalUserId=ada')
  expect(answer.headers.get('cache-control')).toBe('no-store')
  const state = asRecord(await answer.json())
  expect(state).toMatchObject({
    subject: { type: 'end_user', externalUserId: 'ada', billingMode: 'merchant' },
    status: 'active',
    canSpend: true,
    reason: null,
    funding: {
      prepaid: { usdMicros: '20000000', usd: '20.00', currency: 'USD' },
      included: { usd: '5.00' },
      spendable: { usd: '25.00' },
      net: { usd: '25.00' },
      overage: { eligible: false, ceiling: null, remaining: null, utilizationBps: null },
    },
    collection: {
      mode: 'none',
      collector: 'app',
      paymentMethod: { hasDefault: false, brand: null, last4: null },
      nextAction: 'none',
      minimumCharge: { usd: '0.50' },
      leadThreshold: null,
      lastRaisedAt: null,
      nextRaiseEligibleAt: null,
    },
  })
  const wallet = asRecord(await (await get(app, 'wallet?externalUserId=ada')).json())
  expect(wallet['billingState']).toEqual({ ...state, asOf: expect.any(String) })
  expect((await get(app, 'state?externalUserId=ada', app.session)).status).toBe(200)
})

it("returns the owner's state in billing mode owner_rollup, for any user", async () => {
  const app = await real.newApp('stated-rollup')
  expect(await stateOf(app, '?externalUserId=anyone')).toMatchObject({
    subject: { type: 'owner', externalUserId: expect.stringMatching(/^account:/) },
    collection: { collector: 'platform' },
  })
})

it('blocks with the reason of the refusals when no money is left', async () => {
  const app = await newMerchant('empty')
  await operator.allowances.createAdjustment({
    clientId: app.clientId,
    externalUserId: 'ada',
    amountUsdMicros: '-5000000',
    reason: 'test',
    author: 'test',
  })
  const ada = { clientId: app.clientId, externalUserId: 'ada' }
  const { allowance } = await operator.allowances.getAllowance(ada)
  expect(allowance?.canSpend).toBe(false)
  expect(await stateOf(app)).toMatchObject({
    status: 'blocked',
    canSpend: false,
    reason: allowance?.spendRefusal,
    collection: { nextAction: 'add_funds' },
  })
})

it('needs the user in billing mode merchant, and hides other apps', async () => {
  const [app, other] = [await newMerchant('own'), await real.newApp('stranger')]
  expect((await get(app, 'state')).status).toBe(400)
  const foreign = await get(app, 'state?externalUserId=ada', { authorization: other.basic })
  expect(foreign.status).toBe(404)
})
