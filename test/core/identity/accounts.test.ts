import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { unary } from '../../../core/lib/grpc.ts'
import { serviceTokenHeader, sessionHeader } from '../../../proto/headers.ts'
import * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import * as identity from '../../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import {
  type TestApp,
  type TestCore,
  atOnce,
  outcome,
  refusal,
  serviceToken,
  startTestCore,
} from '../support.ts'

let test: TestCore
let app: TestApp
let client: pb.AccountServiceClient
let callers: identity.CallerServiceClient
const password = 'a long enough password'

beforeAll(async () => {
  test = await startTestCore({ LOGIN_OIDC_ALLOWED_DOMAINS: '*' })
  app = await test.newApp()
  client = new pb.AccountServiceClient(test.core.target, credentials.createInsecure())
  callers = new identity.CallerServiceClient(test.core.target, credentials.createInsecure())
})
afterAll(async () => {
  client.close()
  callers.close()
  await test.stop()
})

const options = (headers: Record<string, string> = {}) => ({
  deadlineMs: 15_000,
  headers: { [serviceTokenHeader]: serviceToken, ...headers },
})
const create = (request: Partial<pb.CreateAccountRequest>) =>
  unary(client.createAccount.bind(client))(pb.CreateAccountRequest.fromPartial(request), options())
const logIn = (email: string, secret = password, source: Partial<pb.LogInRequest> = {}) =>
  unary(client.logIn.bind(client))({ email, password: secret, ...source }, options())
const withIdentity = (request: Partial<pb.LogInWithIdentityRequest>) =>
  unary(client.logInWithIdentity.bind(client))(
    pb.LogInWithIdentityRequest.fromPartial({
      issuer: 'https://idp.example',
      state: randomUUID(),
      ...request,
    }),
    options(),
  )
const check = (
  kind: string,
  session: string | undefined,
  clientId: string | undefined = app.clientId,
) =>
  outcome(
    unary(callers.checkCaller.bind(callers))(
      { kind, clientId, scope: undefined },
      options(session === undefined ? {} : { [sessionHeader]: session }),
    ),
  )

describe('an account', () => {
  it('is created once per address, ignoring case', async () => {
    const created = await create({ email: 'Ada@example.com' })
    expect(created.password).toMatch(/^\w{20}$/)
    expect(await outcome(logIn('ada@EXAMPLE.com', created.password))).toBe('OK')
    expect(await outcome(create({ email: 'ada@example.com', password }))).toBe('CONFLICT')
  })

  it('requires a password of 12 to 200 characters and a valid address', async () => {
    for (const secret of ['x'.repeat(11), 'x'.repeat(201)]) {
      expect(await outcome(create({ email: 'short@example.com', password: secret }))).toBe(
        'REQUEST_INVALID',
      )
    }
    expect(await outcome(create({ email: 'nobody', password }))).toBe('REQUEST_INVALID')
    expect(await outcome(create({ email: 'long@example.com', password: 'x'.repeat(200) }))).toBe(
      'OK',
    )
    expect(await outcome(logIn('long@example.com', `${'x'.repeat(200)}y`))).toBe(
      'CREDENTIAL_INVALID',
    )
  })

  it('stores its password as argon2id', async () => {
    await create({ email: 'hash@example.com', password })
    const { rows } = await test.sql.query(
      "select password_hash from accounts where email = 'hash@example.com'",
    )
    expect(rows[0].password_hash).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$/)
  })

  it('rejects a login in about the same time whether it exists or not', async () => {
    await create({ email: 'timed@example.com', password })
    const median = async (email: string) => {
      const times: number[] = []
      for (let i = 0; i < 9; i++) {
        const begin = performance.now()
        await refusal(logIn(email, 'a wrong but long password'))
        times.push(performance.now() - begin)
      }
      return times.sort((a, b) => a - b)[4] ?? 0
    }
    const [known, unknown] = [
      await median('timed@example.com'),
      await median('unknown@example.com'),
    ]
    // argon2 takes tens of milliseconds; skipping it would show as a factor of ten.
    expect(Math.max(known, unknown) / Math.min(known, unknown)).toBeLessThan(3)
  })

  it('accepts twenty concurrent logins', async () => {
    await create({ email: 'crowd@example.com', password })
    const all = await atOnce(20, () => outcome(logIn('crowd@example.com')))
    expect(new Set(all)).toEqual(new Set(['OK']))
  })

  it('returns RATE_LIMITED while too many logins wait', async () => {
    const all = await atOnce(80, () => outcome(logIn('missing@example.com')))
    expect(all.filter((each) => each === 'RATE_LIMITED').length).toBeGreaterThan(0)
    expect(new Set(all)).toEqual(new Set(['CREDENTIAL_INVALID', 'RATE_LIMITED']))
    expect(await outcome(logIn('missing@example.com'))).toBe('CREDENTIAL_INVALID')
  })

  it('limits one address to two places and leaves the others to other addresses', async () => {
    const ofOne = atOnce(12, () =>
      outcome(logIn('missing@example.com', password, { source: 'one' })),
    )
    const ofMany = atOnce(12, (i) =>
      outcome(logIn('missing@example.com', password, { source: `many ${i}` })),
    )
    // Two attempts run and two wait.
    expect((await ofOne).filter((each) => each === 'CREDENTIAL_INVALID').length).toBeLessThan(8)
    expect(await ofOne).toContain('RATE_LIMITED')
    expect(new Set(await ofMany)).toEqual(new Set(['CREDENTIAL_INVALID']))
  })

  it('accepts a login during 240 resets with invented tokens', async () => {
    await create({ email: 'beset@example.com', password })
    const reset = unary(client.resetPassword.bind(client))
    const resets = atOnce(240, (i) =>
      outcome(reset({ token: `made up ${i}`, password }, options())),
    )
    // Resets that are hashed would fill the queue, so that this login and most resets were
    // RATE_LIMITED.
    expect(await outcome(logIn('beset@example.com'))).toBe('OK')
    expect(new Set(await resets)).toEqual(new Set(['GRANT_INVALID']))
  })

  it('accepts a login from a known device while strangers fill their places', async () => {
    await create({ email: 'device@example.com', password })
    const strangers = atOnce(100, (i) =>
      outcome(logIn('device@example.com', 'wrong password', { source: `stranger ${i}` })),
    )
    const device = { source: 'account:1', isKnownDevice: true }
    const known = await outcome(logIn('device@example.com', password, device))
    const left = await Promise.race([strangers, 'strangers wait'])
    expect([known, left]).toEqual(['OK', 'strangers wait'])
    expect(await strangers).toContain('RATE_LIMITED')
  })

  it("accepts a stranger's login while known devices fill their places", async () => {
    const ended: string[] = []
    const attempt = async (source: string, isKnownDevice: boolean) => {
      const end = await outcome(logIn('missing@example.com', password, { source, isKnownDevice }))
      ended.push(source)
      return end
    }
    const ends = await atOnce(31, (i) =>
      i === 10 ? attempt('stranger', false) : attempt(`account:${i}`, true),
    )
    expect(new Set(ends)).toEqual(new Set(['CREDENTIAL_INVALID']))
    expect(ended.indexOf('stranger')).toBeLessThan(25)
  })
})

describe('a password change', () => {
  it.each([
    ['a login', async (email: string) => outcome(logIn(email))],
    [
      'a link of an identity',
      async (email: string) => {
        const identity = await withIdentity({ subject: email, email, emailVerified: true })
        const linkToken = identity.linkToken ?? ''
        return outcome(
          unary(client.linkIdentity.bind(client))({ email, password, linkToken }, options()),
        )
      },
    ],
  ])('rejects %s that compared the old password', async (_, begin) => {
    const email = `${randomUUID()}@example.com`
    const { account } = await create({ email, password })
    const changing = await test.sql.connect()
    onTestFinished(() => changing.release())
    await changing.query('begin')
    await changing.query("update accounts set password_hash = 'another' where id = $1", [
      account?.id,
    ])
    const login = begin(email)
    // Long enough to compare the old password, which others can still read before the commit.
    const first = await Promise.race([login, sleep(1_500, 'waits')])
    await changing.query('commit')
    expect([first, await login]).toEqual(['waits', 'CREDENTIAL_INVALID'])
    const { rows } = await test.sql.query('select from web_sessions where account_id = $1', [
      account?.id,
    ])
    expect(rows).toEqual([])
  })
})

describe('an external identity', () => {
  it('creates an account for a verified address and finds it again by subject', async () => {
    const first = await withIdentity({
      subject: 's1',
      email: 'new@example.com',
      emailVerified: true,
      name: 'New',
    })
    const second = await withIdentity({
      subject: 's1',
      email: 'changed@example.com',
      emailVerified: false,
    })
    expect(second.session?.account?.id).toBe(first.session?.account?.id)
    expect(second.session?.account?.email).toBe('new@example.com')
    expect(await outcome(logIn('new@example.com', ''))).toBe('CREDENTIAL_INVALID')
  })

  const link = (request: { linkToken?: string | undefined; email?: string; password?: string }) =>
    unary(client.linkIdentity.bind(client))(
      { email: 'owner@example.com', password, ...request, linkToken: request.linkToken ?? '' },
      options(),
    )

  it('is linked to an existing account only with its password, once', async () => {
    const { account } = await create({ email: 'owner@example.com', password })
    await create({ email: 'other@example.com', password })
    const identity = { subject: 's2', email: 'OWNER@example.com', emailVerified: true }
    expect(await outcome(withIdentity({ ...identity, emailVerified: false }))).toBe('ACCESS_DENIED')
    const { sessionToken, linkToken, linkEmail } = await withIdentity(identity)
    expect([sessionToken, linkEmail]).toEqual(['', 'owner@example.com'])
    expect(await outcome(link({ linkToken, password: 'not the password' }))).toBe(
      'CREDENTIAL_INVALID',
    )
    expect(await outcome(link({ linkToken, email: 'other@example.com' }))).toBe(
      'CREDENTIAL_INVALID',
    )
    expect((await withIdentity(identity)).sessionToken).toBe('')
    expect((await link({ linkToken })).session?.account?.id).toBe(account?.id)
    expect(await outcome(link({ linkToken }))).toBe('GRANT_INVALID')
    expect((await withIdentity(identity)).session?.account?.id).toBe(account?.id)
  })

  it('cannot guess the password of the account with its address', async () => {
    const identity = { subject: 's6', email: 'other@example.com', emailVerified: true }
    const { linkToken } = await withIdentity(identity)
    for (let i = 0; i < 5; i++)
      expect(await outcome(link({ linkToken, email: 'other@example.com', password: 'no' }))).toBe(
        'CREDENTIAL_INVALID',
      )
    expect(await outcome(link({ linkToken, email: 'other@example.com' }))).toBe('GRANT_INVALID')
  })

  it.each(['İda@example.com', 'ida@exämple.com@x', 'ıda@example.com', '\u212Aim@example.com'])(
    'with the address %s does not match another account',
    async (email) => {
      for (const known of ['ida@example.com', 'kim@example.com'])
        await outcome(create({ email: known }))
      expect(await outcome(withIdentity({ subject: email, email, emailVerified: true }))).toBe(
        'ACCESS_DENIED',
      )
    },
  )

  it('never leads to a platform admin, even by an existing link', async () => {
    const { account } = await create({ email: 'root@example.com', password, isPlatformAdmin: true })
    const identity = { subject: 's7', email: 'root@example.com', emailVerified: true }
    expect(await outcome(withIdentity(identity))).toBe('ACCESS_DENIED')
    await test.sql.query(
      "insert into account_identities (issuer, subject, account_id, created_at) values ('https://idp.example', 's7', $1, now())",
      [account?.id],
    )
    expect(await outcome(withIdentity(identity))).toBe('ACCESS_DENIED')
  })

  it('accepts each response of the provider once', async () => {
    const identity = { subject: 's8', email: 's8@example.com', emailVerified: true, state: 'one' }
    expect(await outcome(withIdentity(identity))).toBe('OK')
    expect(await outcome(withIdentity(identity))).toBe('REQUEST_INVALID')
    expect(await outcome(withIdentity({ ...identity, state: '' }))).toBe('REQUEST_INVALID')
  })

  it('creates one account for concurrent logins', async () => {
    const all = await atOnce(6, () =>
      withIdentity({ subject: 's3', email: 'twice@example.com', emailVerified: true }),
    )
    expect(new Set(all.map(({ session }) => session?.account?.id)).size).toBe(1)
  })

  it('differs from the same subject of another issuer', async () => {
    const first = await withIdentity({
      subject: 's4',
      email: 'a4@example.com',
      emailVerified: true,
    })
    const other = await withIdentity({
      issuer: 'https://other.example',
      subject: 's4',
      email: 'b4@example.com',
      emailVerified: true,
    })
    expect(other.session?.account?.id).not.toBe(first.session?.account?.id)
  })
})

describe('a member', () => {
  async function memberWith(role: string | null, isPlatformAdmin = false): Promise<string> {
    const email = `${role ?? 'none'}-${isPlatformAdmin}@example.com`
    const { account } = await create({ email, password, isPlatformAdmin })
    if (role !== null) {
      await test.sql.query(
        `insert into members (app_id, account_id, role, created_at)
        select app_id, $1, $2, now() from clients where client_id = $3`,
        [account?.id, role, app.clientId],
      )
    }
    return (await logIn(email)).sessionToken
  }

  it('may do what its role allows, while others get NOT_FOUND', async () => {
    const [viewer, admin, owner, stranger] = [
      await memberWith('viewer'),
      await memberWith('admin'),
      await memberWith('owner'),
      await memberWith(null),
    ]
    const of = async (session: string) => [
      await check('member_read', session),
      await check('member_edit', session),
      await check('member_own', session),
    ]
    expect(await of(viewer)).toEqual(['OK', 'EDIT_FORBIDDEN', 'EDIT_FORBIDDEN'])
    expect(await of(admin)).toEqual(['OK', 'OK', 'EDIT_FORBIDDEN'])
    expect(await of(owner)).toEqual(['OK', 'OK', 'OK'])
    expect(await of(stranger)).toEqual(['NOT_FOUND', 'NOT_FOUND', 'NOT_FOUND'])
    const unknown = 'app_ffffffffffffffffffffffff'
    expect(await check('member_read', owner, unknown)).toBe('NOT_FOUND')
    expect(await check('m2m_or_member', viewer)).toBe('OK')
    expect(await check('m2m_or_member', undefined)).toBe('NOT_FOUND')
    expect(await check('session', stranger)).toBe('OK')
  })

  it("loses its role's rights immediately, without a new login", async () => {
    const { account } = await create({ email: 'demoted@example.com', password })
    await test.sql.query(
      `insert into members (app_id, account_id, role, created_at)
      select app_id, $1, 'owner', now() from clients where client_id = $2`,
      [account?.id, app.clientId],
    )
    const { sessionToken } = await logIn('demoted@example.com')
    expect(await check('member_own', sessionToken)).toBe('OK')
    await test.sql.query("update members set role = 'viewer' where account_id = $1", [account?.id])
    expect(await check('member_own', sessionToken)).toBe('EDIT_FORBIDDEN')
  })

  it('is every platform admin, in every app', async () => {
    const session = await memberWith(null, true)
    expect(await check('member_own', session)).toBe('OK')
    expect(await check('member_own', session, 'app_ffffffffffffffffffffffff')).toBe('NOT_FOUND')
  })

  it('needs a session', async () => {
    expect(await check('member_read', undefined)).toBe('TOKEN_INVALID')
    expect(await check('session', 'x'.repeat(43))).toBe('TOKEN_INVALID')
  })
})

describe('login through the provider', () => {
  it('is allowed by domain and address, checked at each login', async () => {
    const { core } = await test.startAnother({
      LOGIN_OIDC_ALLOWED_DOMAINS: 'Example.org, bücher.example',
      LOGIN_OIDC_ALLOWED_EMAILS: 'guest@else.example',
    })
    const other = new pb.AccountServiceClient(core.target, credentials.createInsecure())
    const comes = (email: string, more: Partial<pb.LogInWithIdentityRequest> = {}) =>
      outcome(
        unary(other.logInWithIdentity.bind(other))(
          pb.LogInWithIdentityRequest.fromPartial({
            issuer: 'https://strict.example',
            subject: email,
            email,
            emailVerified: true,
            state: randomUUID(),
            ...more,
          }),
          options(),
        ),
      )
    expect([
      await comes('a@example.org'),
      await comes('a@xn--bcher-kva.example'),
      await comes('Guest@else.example'),
      await comes('b@else.example'),
      await comes('a@sub.example.org'),
      await comes('left@else.example', { subject: 'a@example.org' }),
    ]).toEqual(['OK', 'OK', 'OK', 'ACCESS_DENIED', 'ACCESS_DENIED', 'ACCESS_DENIED'])
    other.close()
  })
})

describe('the audit log of accounts', () => {
  const entriesOf = async (account: string | undefined) =>
    (
      await test.sql.query<{ action: string; actor: string; details: Record<string, unknown> }>(
        "select action, actor, details from audit_log where details ->> 'accountId' = $1 order by created_at, id",
        [account],
      )
    ).rows

  it('records creation, logins, resets, password changes and logging out everywhere', async () => {
    const email = 'noted@example.com'
    const { account } = await create({ email, password, isPlatformAdmin: true })
    const { sessionToken } = await logIn(email)
    const { token } = await unary(client.startPasswordReset.bind(client))({ email }, options())
    await unary(client.resetPassword.bind(client))({ token, password: `${password}!` }, options())
    expect(await check('session', sessionToken)).toBe('TOKEN_INVALID')
    const next = await logIn(email, `${password}!`)
    await unary(client.logOutEverywhere.bind(client))(
      { sessionToken: next.sessionToken },
      options(),
    )
    expect(await check('session', next.sessionToken)).toBe('TOKEN_INVALID')
    expect((await entriesOf(account?.id)).map(({ action }) => action).toSorted()).toEqual([
      'account_created',
      'account_logged_in',
      'account_logged_in',
      'account_logged_out_everywhere',
      'account_password_changed',
      'account_password_reset_started',
    ])
  })

  it('adds one entry a minute for failed logins and no row for unknown accounts', async () => {
    const { account } = await create({ email: 'guessed@example.com', password })
    const before = await test.sql.query('select count(*)::int as rows from audit_log')
    await atOnce(12, () => outcome(logIn('guessed@example.com', 'wrong')))
    await atOnce(12, () => outcome(logIn('nobody-at-all@example.com', 'wrong')))
    await expect.poll(async () => (await entriesOf(account?.id)).at(-1)?.details['count']).toBe(12)
    const after = await test.sql.query('select count(*)::int as rows from audit_log')
    expect(after.rows[0].rows - before.rows[0].rows).toBe(1)
    const text = await test.metrics.getSingleMetricAsString('tollgate_core_logins_total')
    expect(text).toMatch(/outcome="unknown"[^\n]*\} \d+/)
  })

  it('records new platform admins and changed addresses', async () => {
    const { account } = await create({ email: 'rise@example.com', password })
    const change = (request: Partial<pb.UpdateAccountRequest>) =>
      unary(client.updateAccount.bind(client))(
        pb.UpdateAccountRequest.fromPartial(request),
        options(),
      )
    await change({ email: 'rise@example.com', isPlatformAdmin: true })
    test.clock.advance(1_000)
    await change({ id: account?.id, newEmail: 'Risen@Example.com' })
    expect(await outcome(logIn('risen@example.com'))).toBe('OK')
    expect(await outcome(change({ email: 'rise@example.com' }))).toBe('NOT_FOUND')
    expect(await outcome(change({ id: account?.id, newEmail: 'ada@example.com' }))).toBe('CONFLICT')
    const changes = (await entriesOf(account?.id)).filter(
      ({ action }) => action === 'account_changed',
    )
    expect(changes.map(({ actor, details }) => [actor, details])).toEqual([
      ['operator', { accountId: account?.id, isPlatformAdmin: true, addressChanged: false }],
      ['operator', { accountId: account?.id, isPlatformAdmin: true, addressChanged: true }],
    ])
  })
})
