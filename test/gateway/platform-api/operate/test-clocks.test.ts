import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { logIn, logInTo } from '../../../support/web/people.ts'
import { type Console, startConsole } from '../../console.ts'

const day = 86_400

let console: Console
beforeAll(async () => {
  console = await startConsole()
})
afterAll(() => console.stop())

const path = '/api/v1/internal/operate/test-clocks'

async function advance(
  { clientId, basic }: { clientId: string; basic: string },
  advanceSeconds: number,
): Promise<void> {
  const { status } = await console.send('POST', `/api/v1/apps/${clientId}/test-clock`, {
    authorization: basic,
    json: { advanceSeconds },
  })
  expect(status).toBe(200)
}

describe('the test clocks that were moved', () => {
  it('are listed for platform admins, the furthest first, without apps at real time', async () => {
    const person = await logIn(console, { isPlatformAdmin: true })
    const near = await console.newApp({ isTest: true })
    const far = await console.newApp({ isTest: true })
    await console.newApp({ isTest: true })
    expect(await (await console.send('GET', path, { person })).json()).toEqual({ clocks: [] })
    await advance(near, day)
    await advance(far, 3 * day)
    await advance(far, 40 * day)
    const clock = { name: expect.any(String), movedAt: expect.any(String), now: expect.any(String) }
    expect(await (await console.send('GET', path, { person })).json()).toEqual({
      clocks: [
        { ...clock, clientId: far.clientId, aheadMs: String(43 * day * 1_000), moves: 2 },
        { ...clock, clientId: near.clientId, aheadMs: String(day * 1_000), moves: 1 },
      ],
    })
  })

  it('are refused to others', async () => {
    const app = await console.newApp({ isTest: true })
    const owner = await logInTo(console, app, 'owner')
    expect((await console.send('GET', path, { person: owner })).status).toBe(403)
    expect((await console.send('GET', path, { authorization: app.basic })).status).toBe(401)
    expect((await console.send('GET', path, {})).status).toBe(401)
  })
})
