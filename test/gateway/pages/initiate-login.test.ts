import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { issuer } from '../../core/support.ts'
import { type Pages, startPages } from './support.ts'

let pages: Pages
let clientId: string
const target = 'https://svc.example/oidc/device?user_code=BCDF-GHJK'

beforeAll(async () => {
  pages = await startPages()
  clientId = (await pages.newApp()).clientId
  await pages.sql.query(
    'update clients set device_third_party_initiate_login = true, initiate_login_uri = $1 where client_id = $2',
    ['https://app.example/start?from=svc', clientId],
  )
})
afterAll(() => pages.stop())

const path = (change: Record<string, string> = {}): string =>
  `/oidc/device/initiate-login?${new URLSearchParams({ client_id: clientId, target_link_uri: target, ...change }).toString()}`

describe('login started by a device', () => {
  it('redirects to the registered address, with issuer, target and hint', async () => {
    const { status, location } = await pages.browser().get(path({ login_hint: 'ada' }))
    expect([status, location?.origin, location?.pathname]).toEqual([
      302,
      'https://app.example',
      '/start',
    ])
    expect(Object.fromEntries(location?.searchParams ?? [])).toEqual({
      from: 'svc',
      iss: issuer,
      target_link_uri: target,
      login_hint: 'ada',
    })
  })

  it('does not loop', async () => {
    const browser = pages.browser()
    await browser.get(path())
    expect((await browser.get(path())).location?.href).toBe(target)
  })

  it.each([
    'https://evil.example/oidc/device',
    'https://svc.example/login',
    'https://svc.example/oidc/device#x',
    'https://a:b@svc.example/oidc/device',
    '/oidc/device',
    '',
  ])('never redirects to %s', async (uri) => {
    const { status, location } = await pages.browser().get(path({ target_link_uri: uri }))
    expect([status, location]).toEqual([400, null])
  })

  it('does not start for a client that does not support it', async () => {
    const other = await pages.newApp()
    expect((await pages.browser().get(path({ client_id: other.clientId }))).status).toBe(404)
    expect(
      (await pages.browser().get(path({ client_id: 'm2m_ffffffffffffffffffffffff' }))).status,
    ).toBe(404)
  })
})
