import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { logIn, logInTo } from '../../../support/web/people.ts'
import { console, openApp, openConsole, app } from '../support.ts'

beforeAll(async () => {
  await openConsole({ env: { PIPELINES: 'llm,live:fast' } })
  await openApp('viewer')
})
afterAll(() => console.stop())

const offers = [
  { pipeline: 'llm', modelId: '*', source: 'setting' },
  { pipeline: 'live', modelId: 'fast', source: 'setting' },
]
const ofApp = (clientId: string): string => `/api/v1/internal/apps/${clientId}/catalog`

async function read(path: string, request: Parameters<typeof console.send>[2]) {
  const answer = await console.send('GET', path, request)
  return [answer.status, answer.status === 200 ? await answer.json() : undefined]
}

describe('the catalogue', () => {
  it("is read by an app's members, without the operator's address", async () => {
    const person = await logInTo(console, app, 'viewer')
    expect(await read(ofApp(app.clientId), { person })).toEqual([200, { offers }])
    const after = '?afterPipeline=z'
    expect(await read(ofApp(app.clientId) + after, { person })).toEqual([200, { offers: [] }])
  })

  it('is refused to strangers and to backends', async () => {
    const person = await logIn(console)
    expect(await read(ofApp(app.clientId), { person })).toEqual([404, undefined])
    expect(await read(ofApp(app.clientId), {})).toEqual([401, undefined])
    expect(await read(ofApp(app.clientId), { authorization: app.basic })).toEqual([401, undefined])
  })

  it('is read by platform admins without an app, and by no one else', async () => {
    const person = await logIn(console, { isPlatformAdmin: true })
    const path = '/api/v1/internal/operate/catalog'
    expect(await read(path, { person })).toEqual([200, { offers }])
    const owner = await logInTo(console, app, 'owner')
    expect(await read(path, { person: owner })).toEqual([403, undefined])
  })
})
