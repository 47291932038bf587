import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { UpdateAppRequest } from '../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { type Managing, type Person, logIn, logInTo, manage } from '../../support/web/people.ts'
import {
  type TestApp,
  type TestCore,
  atOnce,
  basicOf,
  day,
  outcome,
  startTestCore,
} from '../support.ts'

let core: TestCore
let app: TestApp
let ada: Person
let owner: Managing
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp()
  ada = await logInTo(core, app, 'owner')
  owner = manage(core, { session: ada.token })
})

const named = () => ({ clientId: app.clientId })
const update = (change: Partial<UpdateAppRequest>) => owner.updateApp({ ...named(), ...change })
/** Actions in the audit log, in alphabetical order, because the test clock does not advance. */
const actions = async () =>
  (await owner.listAudit(named())).entries.map(({ action }) => action).toSorted()

describe('the members of an app', () => {
  it('are changed and removed with audit entries', async () => {
    const bob = await logInTo(core, app, 'viewer')
    const email = bob.email.toUpperCase()
    const { member } = await owner.upsertMember({ ...named(), email, role: 'admin' })
    expect(member).toMatchObject({ email: bob.email, role: 'admin' })
    expect(
      (await owner.listMembers(named())).members
        .map((each) => `${each.role} ${each.email}`)
        .toSorted(),
    ).toEqual([`admin ${bob.email}`, `owner ${ada.email}`])
    await owner.deleteMember({ ...named(), accountId: bob.accountId })
    expect(await outcome(manage(core, { session: bob.token }).getApp(named()))).toBe('NOT_FOUND')
    expect(await actions()).toEqual(['app_created', 'member_removed', 'member_role_changed'])
  })

  it('always include an owner, also when two leave concurrently', async () => {
    const email = ada.email
    expect(await outcome(owner.upsertMember({ ...named(), email, role: 'admin' }))).toBe('CONFLICT')
    expect(await outcome(owner.deleteMember({ ...named(), accountId: ada.accountId }))).toBe(
      'CONFLICT',
    )
    const bob = await logInTo(core, app, 'owner')
    const both = await Promise.all(
      [ada, bob].map(({ token, accountId }) =>
        outcome(manage(core, { session: token }).deleteMember({ ...named(), accountId })),
      ),
    )
    expect(both.toSorted()).toEqual(['CONFLICT', 'OK'])
  })

  it('are made or removed as owners only by an owner', async () => {
    const admin = await logInTo(core, app, 'admin')
    const by = manage(core, { session: admin.token })
    expect(await outcome(by.upsertMember({ ...named(), email: admin.email, role: 'owner' }))).toBe(
      'EDIT_FORBIDDEN',
    )
    expect(await outcome(by.upsertMember({ ...named(), email: ada.email, role: 'viewer' }))).toBe(
      'EDIT_FORBIDDEN',
    )
    expect(await outcome(by.deleteMember({ ...named(), accountId: ada.accountId }))).toBe(
      'EDIT_FORBIDDEN',
    )
  })

  it('must exist and have a known role', async () => {
    expect(await outcome(owner.upsertMember({ ...named(), email: 'nobody', role: 'viewer' }))).toBe(
      'REQUEST_INVALID',
    )
    expect(await outcome(owner.upsertMember({ ...named(), email: ada.email, role: 'king' }))).toBe(
      'REQUEST_INVALID',
    )
    expect(await outcome(owner.deleteMember({ ...named(), accountId: 'x' }))).toBe('NOT_FOUND')
    expect(
      await outcome(owner.deleteMember({ ...named(), accountId: (await logIn(core)).accountId })),
    ).toBe('NOT_FOUND')
  })

  it('are checked for each request', async () => {
    const bob = await logInTo(core, app, 'admin')
    const by = manage(core, { session: bob.token })
    await by.updateApp({ ...named(), name: 'One' })
    await owner.upsertMember({ ...named(), email: bob.email, role: 'viewer' })
    expect(await outcome(by.updateApp({ ...named(), name: 'Two' }))).toBe('EDIT_FORBIDDEN')
  })
})

describe('a new secret', () => {
  const works = (secret: string) =>
    outcome(core.as(basicOf(app.m2mClientId, secret)).listUsers(named()))

  it('is valid immediately, and the old one until the overlap has ended', async () => {
    const created = await owner.rotateSecret(named())
    expect(created).toMatchObject({
      m2mClientId: app.m2mClientId,
      oldSecretsExpireAt: new Date(core.clock.now().getTime() + day).toISOString(),
    })
    expect([await works(created.clientSecret), await works(app.secret)]).toEqual(['OK', 'OK'])
    core.clock.advance(day)
    expect([await works(created.clientSecret), await works(app.secret)]).toEqual([
      'OK',
      'CREDENTIAL_INVALID',
    ])
    expect(await actions()).toContain('client_secret_rotated')
  })

  it('ends the older secrets immediately with revokeOld', async () => {
    const created = await owner.rotateSecret({ ...named(), revokeOld: true })
    expect([await works(created.clientSecret), await works(app.secret)]).toEqual([
      'OK',
      'CREDENTIAL_INVALID',
    ])
  })

  it('does not extend the lifetime of an old one', async () => {
    await owner.rotateSecret(named())
    core.clock.advance(day / 2)
    await owner.rotateSecret(named())
    core.clock.advance(day / 2)
    expect(await works(app.secret)).toBe('CREDENTIAL_INVALID')
  })

  it('is created once per Idempotency-Key', async () => {
    const [one, two] = await atOnce(2, () =>
      owner.rotateSecret({ ...named(), idempotencyKey: 'k' }).catch(() => null),
    )
    const again = await owner.rotateSecret({ ...named(), idempotencyKey: 'k' })
    expect([one, two].some((created) => created?.clientSecret === again.clientSecret)).toBe(true)
    expect(
      await outcome(owner.rotateSecret({ ...named(), idempotencyKey: 'k', revokeOld: true })),
    ).toBe('IDEMPOTENCY_CONFLICT')
    expect(await outcome(owner.rotateSecret({ ...named(), idempotencyKey: 'a b' }))).toBe(
      'REQUEST_INVALID',
    )
  })

  it('is limited to five valid secrets', async () => {
    for (let i = 0; i < 4; i++) await owner.rotateSecret(named())
    expect(await outcome(owner.rotateSecret(named()))).toBe('CONFLICT')
    expect(await outcome(owner.rotateSecret({ ...named(), revokeOld: true }))).toBe('OK')
  })

  it('is not in the audit log', async () => {
    const { clientSecret } = await owner.rotateSecret(named())
    const { rows } = await core.sql.query('select details::text as details from audit_log')
    expect(JSON.stringify(rows)).not.toContain(clientSecret)
  })
})

describe('a domain', () => {
  it.each([
    ['https://App.Example', 'https://app.example'],
    ['app.example', 'https://app.example'],
    ['https://app.example:443/', 'https://app.example'],
    ['https://app.example:8443', 'https://app.example:8443'],
    ['http://localhost:3000', 'http://localhost:3000'],
    [' https://bücher.example ', 'https://xn--bcher-kva.example'],
  ])('%s is stored as the origin %s, once', async (given, origin) => {
    const { domain } = await owner.createDomain({ ...named(), origin: given })
    expect(domain?.origin).toBe(origin)
    expect(await outcome(owner.createDomain({ ...named(), origin }))).toBe('CONFLICT')
    expect((await owner.checkOrigin({ ...named(), origin })).allowed).toBe(true)
    expect((await owner.checkOrigin({ origin })).allowed).toBe(true)
    await owner.deleteDomain({ ...named(), id: domain?.id ?? '' })
    expect((await owner.checkOrigin({ ...named(), origin })).allowed).toBe(false)
    expect(await outcome(owner.deleteDomain({ ...named(), id: domain?.id ?? '' }))).toBe(
      'NOT_FOUND',
    )
    expect(await actions()).toEqual(['app_created', 'domain_added', 'domain_removed'])
  })

  it.each([
    'http://app.example',
    'https://app.example/path',
    'https://*.example',
    'https://app.example?x',
    'https://app.example#',
    'ftp://app.example',
    'null',
    '',
    ' ',
    'https://u@app.example',
    'justahost',
  ])('is rejected: %s', async (origin) => {
    expect(await outcome(owner.createDomain({ ...named(), origin }))).toBe('REQUEST_INVALID')
  })

  it('allows nothing in another app', async () => {
    const other = await core.newApp()
    await owner.createDomain({ ...named(), origin: 'https://only.example' })
    expect(
      (await owner.checkOrigin({ clientId: other.clientId, origin: 'https://only.example' }))
        .allowed,
    ).toBe(false)
    expect(
      (await owner.checkOrigin({ clientId: 'nonsense', origin: 'https://only.example' })).allowed,
    ).toBe(false)
  })

  it('is not needed at the issuer for the origin of a redirect URI', async () => {
    await update({ redirectUris: { values: ['https://spa.example/cb'] } })
    expect((await owner.checkOrigin({ origin: 'https://spa.example' })).allowed).toBe(true)
    expect((await owner.checkOrigin({ origin: 'https://spa.exampl' })).allowed).toBe(false)
    expect((await owner.checkOrigin({ ...named(), origin: 'https://spa.example' })).allowed).toBe(
      false,
    )
  })
})

describe('the audit log', () => {
  it('lists entries newest first, in pages or by action', async () => {
    for (const name of ['a', 'b', 'c']) {
      core.clock.advance(1_000)
      await update({ name })
    }
    const first = await owner.listAudit({ ...named(), limit: 2 })
    const second = await owner.listAudit({ ...named(), limit: 2, cursor: first.nextCursor })
    const times = [...first.entries, ...second.entries].map(({ createdAt }) => createdAt)
    expect(times).toHaveLength(4)
    expect(times).toEqual(times.toSorted().toReversed())
    expect(second.nextCursor).toBeUndefined()
    expect((await owner.listAudit({ ...named(), action: 'app_created' })).entries).toHaveLength(1)
    for (const bad of [{ cursor: 'x' }, { limit: 1_001 }, { action: 'no such' }]) {
      expect(await outcome(owner.listAudit({ ...named(), ...bad }))).toBe('REQUEST_INVALID')
    }
  })
})
