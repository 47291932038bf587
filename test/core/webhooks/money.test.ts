import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type TestApp, type TestCore, startTestCore, until } from '../support.ts'
import { envelope } from '../metering/harness.ts'
import { type Receiver, startReceiver } from './receiver.ts'

let core: TestCore
let receiver: Receiver
beforeAll(async () => {
  core = await startTestCore({ OUTBOUND_ALLOW: '127.0.0.1' })
  receiver = await startReceiver()
})
afterAll(async () => {
  await core.stop()
  receiver.stop()
})

async function newApp(isTest = false): Promise<TestApp> {
  const app = await core.newApp({ starterUsdMicros: '5000000', isTest })
  const { secret = '' } = await core
    .asOperator()
    .createWebhookEndpoint({ clientId: app.clientId, url: receiver.url })
  registerSecret(secret)
  await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
  return app
}

/** Books tickets of these costs in USD, at 3000 USD per ETH, in one batch. */
async function spend({ clientId }: TestApp, ...costs: number[]): Promise<void> {
  const at = core.clock.now()
  const session = randomUUID()
  await core.as().ingestEvents({
    envelopes: costs.map((usd, index) =>
      envelope({
        auth_id: `${clientId}:ada`,
        computed_fee: String(BigInt(Math.round(usd * 1_000_000)) * (10n ** 12n / 3000n) + 1n),
        current_time: at.toISOString(),
        current_time_unix: at.getTime(),
        session_id: session,
        sequence_number: index,
      }),
    ),
  })
}

const moneyTypes = (): unknown[] =>
  receiver.types().filter((type) => /^(balance|access)\./.test(String(type)))

describe('events of money', () => {
  it('are sent once per crossing, however many tickets cross it', async () => {
    const app = await newApp()
    await spend(app, 2, 1)
    await spend(app, 0.5, 0.3, 0.3, 0.1)
    await until(() => moneyTypes().length === 1)
    await spend(app, 0.1)
    const low = receiver.received.find(({ type }) => type === 'balance.low')
    expect(low?.data).toMatchObject({ externalUserId: 'ada', thresholdUsdMicros: '1000000' })
    await spend(app, 1, 1)
    await until(() => moneyTypes().length === 3)
    await spend(app, 1)
    await core.as(app.basic).createGrant({
      clientId: app.clientId,
      externalUserId: 'ada',
      amountUsdMicros: '1000000',
    })
    await until(() => moneyTypes().length === 4)
    expect(moneyTypes().toSorted()).toEqual([
      'access.lost',
      'access.restored',
      'balance.depleted',
      'balance.low',
    ])
    const restored = receiver.received.find(({ type }) => type === 'access.restored')
    expect(restored?.data).toEqual({ externalUserId: 'ada', balanceUsdMicros: '1000000' })
  })

  it('are timed by real time in an app whose clock is ahead', async () => {
    const app = await newApp(true)
    await until(() => receiver.types().filter((type) => type === 'user.created').length === 2)
    await core.sql.query(
      `insert into test_clock_moves (app_id, since, ahead_ms)
       select app_id, $2, 86400000 from clients where client_id = $1`,
      [app.clientId, core.clock.now()],
    )
    core.clock.advance(1_000)
    const before = receiver.received.length
    await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'bob' })
    await until(() => receiver.received.length > before)
    const { timestamp } = JSON.parse(receiver.received.at(-1)?.body ?? '{}')
    expect(timestamp).toBe(core.clock.now().toISOString())
    expect(receiver.received.at(-1)?.headers['webhook-timestamp']).toBe(
      String(Math.floor(core.clock.now().getTime() / 1_000)),
    )
  })
})
