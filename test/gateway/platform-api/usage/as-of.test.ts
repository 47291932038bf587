import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Real, type RealApp, startReal } from '../../real.ts'

let real: Real
let app: RealApp
beforeAll(async () => {
  real = await startReal()
  app = await real.newApp('mine')
})
afterAll(() => real.stop())

async function ask(
  path: string,
  authorization: string,
): Promise<{ status: number; body: unknown }> {
  const response = await fetch(real.url + path, { headers: { authorization } })
  return { status: response.status, body: await response.json() }
}

const asOf = (instant: string) => `asOf=${encodeURIComponent(instant)}`
const paths = (query: string) =>
  [
    [`/api/v1/builder/apps/${app.clientId}/usage/balance?externalUserId=ada&${query}`, app.basic],
    [`/api/v1/apps/${app.clientId}/usage/balance?externalUserId=ada&${query}`, app.basic],
    [`/api/v1/user/usage/balance?${query}`, app.userToken],
  ] as const

describe('GET …/usage/balance?asOf=', () => {
  it('returns the balance at that time, with the time', async () => {
    const came = real.core.clock.now().toISOString()
    real.core.clock.advance(1_000)
    await real.core
      .as(app.basic)
      .createGrant({ clientId: app.clientId, externalUserId: 'ada', amountUsdMicros: '5' })
    for (const [path, credential] of paths(asOf(came))) {
      expect(await ask(path, credential)).toEqual({
        status: 200,
        body: {
          externalUserId: 'ada',
          balanceUsdMicros: '5000000',
          remainingUsdMicros: '5000000',
          consumedUsdMicros: '0',
          lifetimeGrantedUsdMicros: '5000000',
          hasAccess: true,
          featureBalances: [],
          unpricedCount: 0,
          asOf: came,
        },
      })
    }
    for (const [path, credential] of paths('')) {
      const { body } = await ask(path, credential)
      expect(body).toMatchObject({ balanceUsdMicros: '5000005' })
      expect(body).not.toHaveProperty('asOf')
    }
  })

  it('refuses the future and invalid times with 400, and a time before the user with 404', async () => {
    const answers = async (instant: string) =>
      Promise.all(
        paths(asOf(instant)).map(
          async ([path, credential]) => (await ask(path, credential)).status,
        ),
      )
    expect(await answers('2199-01-01T00:00:00Z')).toEqual([400, 400, 400])
    expect(await answers('yesterday')).toEqual([400, 400, 400])
    expect(await answers('2020-01-01T00:00:00Z')).toEqual([404, 404, 404])
  })
})
