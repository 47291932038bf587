import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Real, type RealApp, startReal } from '../real.ts'

let real: Real
let mine: RealApp
let theirs: RealApp
beforeAll(async () => {
  real = await startReal()
  mine = await real.newApp('mine')
  theirs = await real.newApp('theirs')
})
afterAll(() => real.stop())

const allowed = async (path: string, origin: string) =>
  (await fetch(real.url + path, { headers: { origin } })).headers.get('access-control-allow-origin')

it('lets a page read the routes of the app that registered its origin, OIDC routes, but not other apps', async () => {
  const origin = 'https://page.example'
  const users = (app: RealApp) => `/api/v1/apps/${app.clientId}/users`
  const added = await fetch(`${real.url}/api/v1/apps/${mine.clientId}/domains`, {
    method: 'POST',
    headers: { ...mine.session, 'content-type': 'application/json' },
    body: JSON.stringify({ domain: origin }),
  })
  expect(added.ok).toBe(true)
  expect(await allowed(users(mine), origin)).toBe(origin)
  expect(await allowed('/api/v1/oidc/jwks', origin)).toBe(origin)
  expect(await allowed(users(theirs), origin)).toBeNull()
  expect(await allowed(users(mine), 'https://other.example')).toBeNull()
  expect(await allowed('/health', origin)).toBeNull()
})
