import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { appId } from '../../../core/shared/ids.ts'
import { userListStatement } from '../../../core/identity/users/store.ts'
import type { ListUsersRequest } from '../../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import { type Rpcs, type TestApp, type TestCore, outcome, startTestCore } from '../support.ts'

let core: TestCore
let app: TestApp
let m2m: Rpcs
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp()
  m2m = core.as(app.basic)
})

const upsert = (user: { externalUserId: string; email?: string }) =>
  m2m.upsertUser({ clientId: app.clientId, ...user })
const list = (request: Partial<ListUsersRequest>) =>
  m2m.listUsers({ clientId: app.clientId, ...request })

describe('listUsers by a beginning', () => {
  it('finds users by the beginning of the id or the e-mail address, with wildcards as letters', async () => {
    await upsert({ externalUserId: 'ada' })
    core.clock.advance(1)
    await upsert({ externalUserId: 'a%b_c\\d' })
    core.clock.advance(1)
    await upsert({ externalUserId: 'x', email: 'Ada@example.com' })
    core.clock.advance(1)
    await upsert({ externalUserId: 'b-ada' })
    const names = async (startsWith: string, request: Partial<ListUsersRequest> = {}) =>
      (await list({ startsWith, ...request })).users.map((user) => user.externalUserId)
    expect(await names('ad')).toEqual(['ada', 'x'])
    expect(await names('AD')).toEqual(['x'])
    expect(await names(' ada@ex ')).toEqual(['x'])
    expect(await names('a%')).toEqual(['a%b_c\\d'])
    expect(await names('a%b_c\\')).toEqual(['a%b_c\\d'])
    expect(await names('a_')).toEqual([])
    expect(await names('%')).toEqual([])
    expect(await names('')).toHaveLength(4)
    await m2m.deactivateUser({ clientId: app.clientId, externalUserId: 'x' })
    expect(await names('ad', { status: 'active' })).toEqual(['ada'])
    const { nextCursor } = await list({ startsWith: 'ad', limit: 1 })
    expect(await names('ad', { cursor: nextCursor })).toEqual(['x'])
    const other = core.as((await core.newApp()).basic)
    expect(await outcome(other.listUsers({ clientId: app.clientId, startsWith: 'a' }))).toBe(
      'NOT_FOUND',
    )
  })

  it('finds a beginning by an index among many users', async () => {
    await core.sql.query(
      `insert into end_users (app_id, id, external_user_id, email, status, created_at, updated_at)
       select app_id, gen_random_uuid(), 'user-' || n, 'mail-' || n || '@example.com', 'active', now(), now()
       from (select app_id from clients where client_id = $1) app, generate_series(1, 20000) n`,
      [app.clientId],
    )
    await core.sql.query('analyze end_users')
    const { rows: apps } = await core.sql.query<{ app_id: string }>(
      'select app_id from clients where client_id = $1',
      [app.clientId],
    )
    const { text, values } = userListStatement({
      appId: appId(String(apps[0]?.app_id)),
      status: null,
      externalUserId: null,
      startsWith: 'mail-777',
      after: null,
      limit: 50,
    })
    const { rows } = await core.sql.query(`explain ${text}`, values)
    const plan = JSON.stringify(rows)
    expect(plan).not.toContain('Seq Scan')
    expect(plan).toContain('end_users_by_external_id')
    expect(plan).toContain('end_users_by_email')
    expect((await list({ startsWith: 'mail-777' })).users).toHaveLength(11)
  })

  it.each([
    ['a NUL', 'a\u0000'],
    ['a beginning longer than any address', 'a'.repeat(321)],
  ])('rejects %s', async (_what, startsWith) => {
    expect(await outcome(list({ startsWith }))).toBe('REQUEST_INVALID')
  })
})
