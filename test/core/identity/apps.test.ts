import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type TestApp, type TestCore, outcome, startTestCore } from '../support.ts'

let core: TestCore
let app: TestApp
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp()
})

describe('createApp', () => {
  it('creates both clients, and the owner with a password that is returned once', async () => {
    const created = await core
      .as()
      .createApp({ name: ' An app ', ownerEmail: 'owner@example.com', starterUsdMicros: '7' })
    expect(created.name).toBe('An app')
    expect(created.clientId).toMatch(/^app_[0-9a-f]{24}$/)
    expect(created.m2mClientId).toMatch(/^m2m_[0-9a-f]{24}$/)
    expect(created.m2mClientSecret).toMatch(/^svc_cs_[0-9A-Za-z]{49}$/)
    expect(created.ownerPassword).toHaveLength(20)
    const second = await core.as().createApp({ name: 'Another', ownerEmail: 'OWNER@example.com' })
    expect(second.ownerPassword).toBeUndefined()
    const { rows } = await core.sql.query(
      `select password_hash from accounts where lower(email) = 'owner@example.com'`,
    )
    expect(rows).toMatchObject([
      { password_hash: expect.stringMatching(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$/) },
    ])
  })

  it("creates a platform app, or with isCustomer an integrator's app", async () => {
    const created = [
      await core.as().createApp({ name: 'Own', ownerEmail: 'owner@example.com' }),
      await core.as().createApp({ name: 'Theirs', isCustomer: true }),
    ]
    expect(created.map(({ isPlatformOwned }) => isPlatformOwned)).toEqual([true, false])
    const { rows } = await core.sql.query(
      `select c.client_id, b.is_platform_owned, b.serves_every_app
       from billing_settings b join clients c on c.app_id = b.app_id and c.kind = 'public'
       where c.client_id = any($1)`,
      [created.map(({ clientId }) => clientId)],
    )
    expect(rows).toEqual([
      { client_id: created[0]?.clientId, is_platform_owned: true, serves_every_app: false },
    ])
  })

  it.each([
    ['no name', { name: ' ' }],
    ['a long name', { name: 'x'.repeat(101) }],
    ['a NUL in the name', { name: 'a\u0000b' }],
    ['a negative Starter', { name: 'x', starterUsdMicros: '-1' }],
    ['a Starter amount in words', { name: 'x', starterUsdMicros: 'many' }],
    ['a huge Starter', { name: 'x', starterUsdMicros: '1000000000000001' }],
    ['no address', { name: 'x', ownerEmail: 'owner' }],
    ['a short password', { name: 'x', ownerEmail: 'o@example.com', ownerPassword: 'short' }],
  ])('rejects %s', async (_what, request) => {
    expect(await outcome(core.as().createApp(request))).toBe('REQUEST_INVALID')
  })

  it('lists every app once, in pages', async () => {
    const clientIds: string[] = []
    let cursor: string | undefined
    do {
      const page = await core.asOperator().listApps({ limit: 7, cursor })
      clientIds.push(...page.apps.map((listed) => listed.clientId))
      cursor = page.nextCursor
    } while (cursor !== undefined)
    expect(new Set(clientIds).size).toBe(clientIds.length)
    expect(clientIds).toContain(app.clientId)
  })
})
