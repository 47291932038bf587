import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { type Sidecar, startSidecar } from '../../../sidecar/server.ts'
import type { TestApp } from '../../core/support.ts'
import { serviceToken, until } from '../../core/support.ts'
import { type Console, startConsole } from '../../gateway/console.ts'
import { type Person, logInTo } from '../../support/web/people.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { firstCall } from '../signer-bodies.ts'
import { type Reply, configOf, post, secret } from '../support.ts'

/** A sidecar with a real core, and users on plans created by HTTP. */

let console: Console
let sidecar: Sidecar
let app: TestApp
let person: Person
beforeAll(async () => {
  console = await startConsole()
  const config = configOf({
    CORE_TARGET: console.core.target,
    CORE_TOKEN: serviceToken,
    PUBLIC_URL: 'https://svc.example',
  })
  sidecar = await startSidecar(config, {
    log: silentLog(),
    metrics: createMetrics('sidecar'),
    now: console.clock.now,
  })
})
afterAll(async () => {
  await sidecar.stop()
  await console.stop()
})
beforeEach(async () => {
  app = await console.newApp({ starterUsdMicros: '0' })
  person = await logInTo(console, app, 'admin')
})

const create = (path: string, json: object, by: object = { person }) =>
  console.ask('POST', `/api/v1/apps/${app.clientId}${path}`, { ...by, json })

const sdxl = { pipeline: 'text-to-image', modelId: 'sdxl' }
const llm = { pipeline: 'llm', modelId: '*' }

/** Creates a plan without its own price that includes 0.09 USD. */
async function newPlan(terms: object): Promise<string> {
  const { status, body } = await create('/plans', {
    name: randomUUID(),
    type: 'subscription',
    includedUnits: '1',
    overageRateWei: '1',
    includedUsdMicros: '90000',
    ...terms,
  })
  expect(status).toBe(201)
  return String(body['id'])
}

const byKey = () => ({ authorization: app.basic })

/** Creates a user on the plan. Returns the user's name and key. */
async function subscribe(planId: string): Promise<{ user: string; key: string }> {
  const user = `u-${randomUUID()}`
  await console.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: user })
  await move(user, planId)
  const { apiKey } = await console
    .as(app.basic)
    .createKey({ clientId: app.clientId, externalUserId: user })
  return { user, key: registerSecret(apiKey) }
}

async function move(user: string, planId: string): Promise<void> {
  const change = { planId, timing: 'immediate' }
  const { status } = await create(`/users/${user}/subscription/change`, change, byKey())
  expect(status).toBe(200)
  // Leave the second in which the new period began.
  console.clock.advance(1_000)
}

// Ten seconds of a live session at 10^12 wei each are 0.03 USD.
const centsThree = 10 ** 12
const authorize = (key: string, state: object = {}): Promise<Reply> =>
  post(
    `${sidecar.url}/authorize`,
    JSON.stringify(
      firstCall({
        key,
        state: {
          StateID: randomUUID().slice(0, 8),
          LastUpdate: console.clock.now().toISOString(),
          InitialPricePerUnit: centsThree,
          ...state,
        },
      }),
    ),
    { authorization: `Bearer ${secret}` },
  )

/** Micro-dollars that are authorised but not booked yet. */
async function authorised(user: string): Promise<bigint> {
  const { rows } = await console.sql.query<{ micros: bigint }>(
    `select trunc(coalesce(sum(a.bound_attos), 0) / 10::numeric ^ 12)::bigint as micros
     from end_users u left join authorisations a on a.user_id = u.id and a.state = 'pending'
     where u.external_user_id = $1`,
    [user],
  )
  return BigInt(rows[0]?.micros ?? 0)
}

const expectAuthorised = (user: string, micros: bigint): Promise<void> =>
  until(async () => (await authorised(user)) === micros)

describe('the bound of a call', () => {
  it.each([
    ['a plan that sells at three times the network price', { overageRateUsd: '0.000003' }, 90_000n],
    [
      'a plan with a cheaper feature',
      { capabilities: [{ ...sdxl, retailRateUsd: '0.0000005' }] },
      30_000n,
    ],
    [
      'the most expensive feature of the plan',
      {
        overageRateUsd: '0.0000005',
        capabilities: [
          { ...sdxl, retailRateUsd: '0.0000015' },
          { ...llm, retailRateUsd: '0.0000025' },
        ],
      },
      75_000n,
    ],
    ['a plan without rates', {}, 30_000n],
  ])('uses the price of %s', async (_, terms, micros) => {
    const { user, key } = await subscribe(await newPlan(terms))
    expect((await authorize(key)).json).toMatchObject({ status: 200 })
    await expectAuthorised(user, micros)
  })

  it('follows a change of plan at once', async () => {
    const { user, key } = await subscribe(await newPlan({}))
    expect((await authorize(key)).json['status']).toBe(200)
    await expectAuthorised(user, 30_000n)
    await move(user, await newPlan({ overageRateUsd: '0.000002' }))
    await until(async () => {
      const { json } = await authorize(key)
      return json['status'] === 483 || (await authorised(user)) === 90_000n
    })
    await expectAuthorised(user, 90_000n)
  })
})

describe('a plan without overage', () => {
  it('refuses with 483 a call that its included usage does not cover at retail', async () => {
    const dear = await subscribe(await newPlan({ overageRateUsd: '0.000003' }))
    expect((await authorize(dear.key)).json['status']).toBe(200)
    expect((await authorize(dear.key)).json).toMatchObject({
      status: 483,
      code: 'insufficient_balance',
    })
    await expectAuthorised(dear.user, 90_000n)
    const usual = await subscribe(await newPlan({}))
    for (const status of [200, 200, 200, 483])
      expect((await authorize(usual.key)).json['status']).toBe(status)
  })

  it('refuses at once when it includes nothing', async () => {
    const { key } = await subscribe(await newPlan({ includedUsdMicros: '0' }))
    expect((await authorize(key)).json).toMatchObject({ status: 483 })
  })
})

describe('a plan with price zero', () => {
  it('costs its users nothing, but requires a balance', async () => {
    const { user, key } = await subscribe(await newPlan({ overageRateUsd: '0' }))
    for (let call = 0; call < 5; call++) expect((await authorize(key)).json['status']).toBe(200)
    await expectAuthorised(user, 0n)
    const empty = await subscribe(await newPlan({ overageRateUsd: '0', includedUsdMicros: '0' }))
    expect((await authorize(empty.key)).json).toMatchObject({ status: 483 })
  })
})

describe("a bundle's ceiling", () => {
  it('is sent to the signer as maxPrice: the highest, in the unit of the session', async () => {
    const capabilities = [
      { ...sdxl, maxPricePerUnit: '2000000000000' },
      { ...llm, maxPricePerUnit: '5000000000000' },
    ]
    const { key } = await subscribe(await newPlan({ capabilities }))
    expect((await authorize(key)).json).toMatchObject({
      status: 200,
      maxPrice: { price: 5_000_000_000_000, currency: 'wei', unit: 'seconds' },
    })
    expect((await authorize(key, { Type: 'fixed' })).json).toMatchObject({
      maxPrice: { price: 5_000_000_000_000, unit: 'fixed' },
    })
  })

  it('is omitted if one of the bundles has no ceiling', async () => {
    const capabilities = [{ ...sdxl, maxPricePerUnit: '2000000000000' }, llm]
    const { key } = await subscribe(await newPlan({ capabilities }))
    const { json } = await authorize(key)
    expect(json).toMatchObject({ status: 200 })
    expect(json).not.toHaveProperty('maxPrice')
  })
})
