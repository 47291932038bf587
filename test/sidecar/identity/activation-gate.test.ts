import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { createLog } from '../../../core/lib/log.ts'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import { type Sidecar, startSidecar } from '../../../sidecar/server.ts'
import {
  type TestApp,
  type TestCore,
  issuer,
  serviceToken,
  startTestCore,
} from '../../core/support.ts'
import { keepLog, registerSecret } from '../../support/run/secrecy.ts'
import { firstCall } from '../signer-bodies.ts'
import { configOf, post, secret } from '../support.ts'

const proxySecret = registerSecret('proxy-secret-of-the-activation-gate-tests')
let core: TestCore
let operator: CoreClient
let app: TestApp
let sidecar: Sidecar
beforeAll(async () => {
  core = await startTestCore({ ACTIVATION_GATE_MODE: 'enforce' })
  operator = connectCore({ target: core.core.target, token: serviceToken, tls: undefined })
  app = await core.newApp()
  const config = configOf({
    CORE_TARGET: core.core.target,
    CORE_TOKEN: serviceToken,
    PUBLIC_URL: 'https://svc.example',
    IDENTITY_AUTH_MODE: 'trusted_headers',
    TRUSTED_PROXY_SECRET: proxySecret,
  })
  sidecar = await startSidecar(config, {
    log: createLog({ level: 'info', name: 'sidecar' }, { write: keepLog }),
    metrics: createMetrics('sidecar'),
    now: core.clock.now,
  })
})
afterAll(async () => {
  await sidecar.stop()
  operator.close()
  await core.stop()
})

const ask = async (user: string, state: object) => {
  const headers = {
    'X-Livepeer-Usage-Issuer': [issuer],
    'X-Livepeer-Client-Id': [app.clientId],
    'X-Livepeer-Usage-Subject': [user],
    'X-Livepeer-Proxy-Secret': [proxySecret],
  }
  const body = JSON.stringify({ headers, state })
  return (await post(`${sidecar.url}/authorize`, body, { authorization: `Bearer ${secret}` })).json
}
const typed = () => ({ ...firstCall().state, LastUpdate: core.clock.now().toISOString() })

describe('the webhook with an enforced activation gate', () => {
  it.each([
    ['with a session', typed],
    ['without one', () => ({})],
  ])("refuses a new user with the gate's code, and allows existing ones, %s", async (_, state) => {
    await operator.billing.updateBillingSettings({
      clientId: app.clientId,
      endUserCap: '1',
      billingMode: undefined,
      isPlatformOwned: undefined,
      servesEveryApp: undefined,
      platformCutPercent: undefined,
    })
    expect(await ask('ada', state())).toMatchObject({ status: 200 })
    const refused = await ask('bob', state())
    expect(refused).toMatchObject({ status: 403, code: 'end_user_cap_reached' })
    expect(refused).not.toHaveProperty('auth_id')
    expect(await ask('ada', state())).toMatchObject({ status: 200 })
  })
})
