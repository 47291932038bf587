import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { basic } from '../../../deploy/cli/client.ts'
import { type TestService, startTestService } from '../../support/deployment/service.ts'

const guesses = 1_000

let running: TestService
beforeAll(async () => {
  running = await startTestService({ RATE_LIMITS: 'on', TRUSTED_PROXY_HOPS: '1' })
})
afterAll(() => running?.stop())

/** Requests a token with client credentials, with `address` as the client's address. */
async function askToken(id: string, secret: string, address: string): Promise<number> {
  const answer = await fetch(`${running.service.quickstart.platformUrl}/api/v1/oidc/token`, {
    method: 'POST',
    body: new URLSearchParams({ grant_type: 'client_credentials' }),
    headers: { authorization: basic(id, secret), 'x-forwarded-for': address },
  })
  await answer.arrayBuffer()
  return answer.status
}

async function exchangeKey(key: string, address: string): Promise<number> {
  const { platformUrl, clientId } = running.service.quickstart
  const answer = await fetch(`${platformUrl}/api/v1/apps/${clientId}/auth/api-key/token`, {
    method: 'POST',
    body: '{}',
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      'x-forwarded-for': address,
    },
  })
  await answer.arrayBuffer()
  return answer.status
}

const inParallel = (count: number, run: (i: number) => Promise<number>): Promise<number[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => run(i)))
const countOf = (statuses: readonly number[], status: number): number =>
  statuses.filter((each) => each === status).length

describe('a thousand wrong guesses at once', () => {
  it('at a client get 401 or 429, and do not lock it out', async () => {
    const { m2mClientId, m2mClientSecret } = running.service.quickstart
    expect(await askToken(m2mClientId, m2mClientSecret, '198.51.100.7')).toBe(200)
    const statuses = await inParallel(guesses, () =>
      askToken(m2mClientId, `svc_cs_${randomUUID()}`, '198.51.100.7'),
    )
    // A new minute may begin in between.
    expect(countOf(statuses, 401)).toBeLessThanOrEqual(40)
    expect(countOf(statuses, 429)).toBeGreaterThanOrEqual(guesses - 40)
    expect(await askToken(m2mClientId, m2mClientSecret, '198.51.100.7')).toBe(200)
    expect(await askToken(m2mClientId, m2mClientSecret, '198.51.100.8')).toBe(200)
  }, 120_000)

  it('at keys get 401 or 429, and do not lock out a valid key at the same address', async () => {
    const { platformUrl, clientId, m2mClientId, m2mClientSecret } = running.service.quickstart
    const headers = {
      authorization: basic(m2mClientId, m2mClientSecret),
      'content-type': 'application/json',
    }
    const users = `${platformUrl}/api/v1/apps/${clientId}/users`
    await fetch(users, { method: 'POST', headers, body: '{"externalUserId":"ada"}' })
    const { apiKey }: { apiKey: string } = JSON.parse(
      await (await fetch(`${users}/ada/keys`, { method: 'POST', headers, body: '{}' })).text(),
    )
    const [statuses, right] = await Promise.all([
      inParallel(guesses, () => exchangeKey(`${clientId}_svc_ak_${randomUUID()}`, '203.0.113.5')),
      inParallel(20, () => exchangeKey(apiKey, '203.0.113.5')),
    ])
    expect(countOf(statuses, 401)).toBeLessThanOrEqual(120)
    expect(countOf(statuses, 401) + countOf(statuses, 429)).toBe(guesses)
    expect(countOf(right, 200)).toBe(20)
  }, 120_000)
})
