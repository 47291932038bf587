import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Real, type RealApp, startReal } from '../../gateway/real.ts'
import { asRecord } from '../../gateway/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'

let real: Real
let ann: RealApp
let bob: RealApp
beforeAll(async () => {
  real = await startReal()
  ann = await real.newApp('ann')
  bob = await real.newApp('bob')
  for (const app of [ann, bob])
    for (const externalUserId of ['ada', 'eve'])
      await post(`${at(app)}/users`, backend(app), { body: { externalUserId } })
})
afterAll(() => real?.stop())

type Headers = Readonly<Record<string, string>>
const at = ({ clientId }: RealApp): string => `/api/v1/apps/${clientId}`
const backend = ({ basic }: RealApp): Headers => ({ authorization: basic })

interface Sending {
  readonly key?: string
  readonly body?: object
}

async function post(path: string, caller: Headers, { key, body = {} }: Sending = {}) {
  const response = await fetch(real.url + path, {
    method: 'POST',
    headers: {
      ...caller,
      'content-type': 'application/json',
      ...(key !== undefined && { 'idempotency-key': key }),
    },
    body: JSON.stringify(body),
  })
  const answer = asRecord(await response.json())
  for (const name of ['apiKey', 'clientSecret', 'secret'])
    if (typeof answer[name] === 'string') registerSecret(answer[name])
  const { correlation_id: _, ...rest } = answer
  return { status: response.status, ...rest }
}

/** Requests that each create a secret. */
const secretsOf = (app: RealApp): readonly (readonly [string, Headers, object])[] => [
  [`${at(app)}/users/ada/keys`, backend(app), {}],
  [`${at(app)}/keys`, app.session, {}],
  [`${at(app)}/credentials?target=m2m`, app.session, {}],
  [`${at(app)}/signer-secrets`, app.session, { purpose: 'decisions' }],
]

describe('an idempotency key', () => {
  it('does not replay a response of another app or route', async () => {
    const key = randomUUID()
    const requests = [...secretsOf(ann), ...secretsOf(bob)]
    const first = []
    for (const [path, caller, body] of requests) first.push(await post(path, caller, { key, body }))
    expect(first.map(({ status }) => status)).toEqual([201, 201, 200, 201, 201, 201, 200, 201])
    expect(new Set(first.map((each) => JSON.stringify(each))).size).toBe(requests.length)
    for (const [index, [path, caller, body]] of requests.entries())
      expect(await post(path, caller, { key, body })).toEqual(first[index])
  })

  it('does not replay a response for another user of the same app', async () => {
    const key = randomUUID()
    const { status } = await post(`${at(ann)}/users/ada/keys`, backend(ann), { key })
    expect(status).toBe(201)
    expect(await post(`${at(ann)}/users/eve/keys`, backend(ann), { key })).toMatchObject({
      status: 409,
      code: 'idempotency_conflict',
    })
  })

  it('does not replay a response to an unauthorised caller', async () => {
    const key = randomUUID()
    const path = `${at(ann)}/users/ada/keys`
    expect((await post(path, backend(ann), { key })).status).toBe(201)
    const statuses = []
    for (const caller of [backend(bob), { authorization: ann.apiKey }, {}, bob.session])
      statuses.push((await post(path, caller, { key })).status)
    for (const status of statuses) expect([401, 404]).toContain(status)
    expect((await post(`${at(ann)}/keys`, bob.session, { key })).status).toBe(404)
  })

  it('grants money once for many concurrent requests, also with different amounts', async () => {
    const path = `${at(bob)}/users/ada/allowances`
    const key = randomUUID()
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, i) =>
        post(path, backend(bob), { key, body: { amountUsdMicros: i % 4 === 0 ? '7' : '5' } }),
      ),
    )
    const good = answers.filter(({ status }) => status === 200)
    expect(good.length).toBeGreaterThan(0)
    expect(new Set(good.map((each) => JSON.stringify(each))).size).toBe(1)
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 409]))
    const response = await fetch(real.url + path, { headers: backend(bob) })
    const { lifetimeGrantedUsdMicros } = asRecord(await response.json())
    expect([5_000_005n, 5_000_007n]).toContain(BigInt(String(lifetimeGrantedUsdMicros)))
  })
})
