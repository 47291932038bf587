import { hostname, userInfo } from 'node:os'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type TestApp, type TestCore } from '../../core/support.ts'
import { operate, startCli, tollgate } from './support.ts'

/** `tollgate user`, `grant`, `redirect-uri` and `member`, with the operator's token only. */
let core: TestCore
let app: TestApp
let appId: string
beforeAll(async () => {
  const cli = await startCli({ QUOTA_MANUAL_CREDIT_USD: '10' })
  core = cli.core
  return cli.stop
})
beforeEach(async () => {
  app = await core.newApp()
  const { rows } = await core.sql.query('select app_id from clients where client_id = $1', [
    app.clientId,
  ])
  appId = rows[0].app_id
})

/** Runs a command for the app, a millisecond after the previous one. */
const run = (line: string) => {
  core.clock.advance(1)
  return operate(...line.split(' '), '--app', app.clientId)
}
const ada = (line: string) => run(`${line} --user ada`)

/** Returns the operators' entries in the app's audit log. */
async function actions(): Promise<{ actor: string; action: string }[]> {
  const { rows } = await core.sql.query(
    `select actor, action from audit_log where app_id = $1 and action <> 'app_created' order by created_at, id`,
    [appId],
  )
  return rows
}

const me = `operator:${userInfo().username}@${hostname()}`
const mine = (...names: string[]) => names.map((action) => ({ actor: me, action }))

describe('tollgate user', () => {
  it('creates, lists, shows, deactivates and activates a user, and records each in the audit log', async () => {
    expect((await run('user list')).text).toBe('no users\n')
    const created = await ada('user put --email ADA@example.com')
    expect(created).toEqual({ code: 0, text: expect.stringMatching(/^created\nada\n/) })
    expect((await ada('user put --no-email')).text).toMatch(/^changed[^]*email +none/)
    expect((await run('user list')).text).toMatch(/\nada +active +\d{4}-\d\d-\d\d\n$/)
    expect((await ada('user show')).text).toMatch(/balance +5\.00 USD\n/)
    const ended = JSON.parse((await ada('user deactivate --json')).text)
    expect(ended).toMatchObject({ user: { status: 'inactive' }, effectiveBy: expect.any(String) })
    expect((await run('user list --status inactive')).text).toContain('ada')
    expect((await ada('user activate')).text).toMatch(/status +active/)
    expect(await actions()).toEqual(
      mine('app_user_upserted', 'app_user_upserted', 'app_user_deactivated', 'app_user_updated'),
    )
  })

  it('ends the keys of a deactivated user permanently', async () => {
    await ada('user put')
    const rpcs = core.as(app.basic)
    const { apiKey } = await rpcs.createKey({ clientId: app.clientId, externalUserId: 'ada' })
    await ada('user deactivate')
    await ada('user activate')
    await expect(core.as().verifyApiKey({ apiKey })).rejects.toThrow('the API key is not valid')
  })

  it('lists page by page', async () => {
    for (const name of ['a', 'b', 'c']) await run(`user put --user ${name}`)
    const first = JSON.parse((await run('user list --limit 2 --json')).text)
    expect(first.users).toHaveLength(2)
    const second = JSON.parse((await run(`user list --json --cursor ${first.nextCursor}`)).text)
    expect(second.users.map((each: { externalUserId: string }) => each.externalUserId)).toEqual([
      'c',
    ])
    expect((await run('user list --limit 2')).text).toMatch(
      /more: \.\/tollgate user list --limit 2 --app app_.* --cursor \S+\n/,
    )
  })

  it.each([
    ['user', 2, 'user takes list, show, put, deactivate, activate'],
    ['user lsit', 2, 'did you mean list?'],
    ['user show', 2, 'user show needs --user'],
    ['user list extra', 2, '"extra" is not expected here'],
    ['user list --limit 0', 2, '--limit must be a whole number from 1 to 1000'],
    ['user list --status gone', 1, '--status must be one of: active, inactive'],
    ['user put --user ada --email x --no-email', 2, '--email or --no-email'],
    ['user put --user ada --email x', 1, '--email must be an e-mail address'],
    ['user put --user owner:x', 1, '--user must not start with owner:'],
    ['user show --user nobody', 1, 'no such user'],
    ['user deactivate --user nobody', 1, 'no such user'],
    ['user activate --user nobody', 1, 'no such user'],
  ])('refuses "%s" with %i', async (line, code, message) => {
    expect(await run(line)).toEqual({ code, text: expect.stringContaining(message) })
  })

  it('reports a missing and a deleted app', async () => {
    const missing = await tollgate('user', 'list', '--app', app.m2mClientId)
    expect(missing).toEqual({ code: 1, text: expect.stringContaining('no app has this client id') })
    await core.sql.query("update apps set status = 'deleted', deleted_at = now() where id = $1", [
      appId,
    ])
    expect((await run('user list')).code).toBe(1)
  })
})

describe('tollgate app show', () => {
  it('prints an app with its owners, clients and settings', async () => {
    await run('redirect-uri add https://shop.example/done')
    const { code, text } = await run('app show')
    expect(code).toBe(0)
    expect(text).toMatch(/^name +An app\nstatus +approved\n/)
    expect(text).toMatch(
      new RegExp(`\nclientId +${app.clientId}\nm2mClientId +${app.m2mClientId}\n`),
    )
    expect(text).toMatch(/\nlogins end at +https:\/\/shop\.example\/done\n/)
    expect(text).toMatch(/\nowners +none\nlogin policy +anyone\n[^]*billing mode +owner_rollup\n/)
    const answer = JSON.parse((await run('app show --json')).text)
    expect(answer).toMatchObject({ clientId: app.clientId, members: [], billing: {} })
    expect(JSON.stringify(answer)).not.toContain('svc_cs_')
    expect(await actions()).toEqual(mine('app_updated'))
  })

  it('refuses an unknown app', async () => {
    const missing = await tollgate('app', 'show', '--app', app.m2mClientId)
    expect(missing).toEqual({ code: 1, text: expect.stringContaining('no app has this client id') })
    expect((await tollgate('app', 'show')).text).toContain('app show needs --app')
  })
})

describe('tollgate account list', () => {
  it('lists accounts page by page, oldest first', async () => {
    for (const name of ['ann', 'ben', 'cat']) {
      core.clock.advance(1)
      const more = name === 'ben' ? ['--platform-admin'] : []
      await operate('account', 'create', '--email', `${name}@list.example`, ...more)
    }
    const { text } = await tollgate('account', 'list')
    expect(text).toMatch(/^email +name +platform admin +created +id\n/)
    expect(text).toMatch(
      /ann@list\.example +no [^]*ben@list\.example +yes [^]*cat@list\.example +no /,
    )
    const first = JSON.parse((await tollgate('account', 'list', '--limit', '1', '--json')).text)
    const rest = await tollgate('account', 'list', '--json', '--cursor', first.nextCursor)
    const { accounts } = JSON.parse(rest.text)
    expect([...first.accounts, ...accounts]).toEqual(
      JSON.parse((await tollgate('account', 'list', '--json')).text).accounts,
    )
    expect((await tollgate('account', 'list', '--limit', '1')).text).toContain('more: ')
    await core.sql.query("delete from accounts where email like '%@list.example'")
    expect((await tollgate('account', 'list', '--limit', '0')).code).toBe(2)
    expect((await tollgate('account', 'list', '--cursor', 'x')).code).toBe(1)
  })
})

describe('tollgate grant', () => {
  beforeEach(async () => {
    await ada('user put')
  })

  it('gives credit once per key, and lists it', async () => {
    const give = 'grant give --usd-micros 2500000 --source promo --key order-1 --json'
    const { grant } = JSON.parse((await ada(give)).text)
    expect(JSON.parse((await ada(give)).text).grant).toEqual(grant)
    expect(grant).toMatchObject({ amountUsdMicros: '2500000', source: 'promo' })
    expect((await ada('grant give --usd-micros 1')).text).toContain(
      '0.000001 USD; ada has 7.500001 USD for any',
    )
    const { text } = await ada('grant list')
    expect(text).toMatch(/2\.50 +2\.50 +promo +any +never/)
    expect(text).toContain('ada has 7.500001 USD for any feature')
    expect((await actions()).slice(1)).toEqual(mine('allowance_granted', 'allowance_granted'))
  })

  it('gives credit for one feature, separate from other figures', async () => {
    const { text } = await ada('grant give --usd-micros 3 --feature text-to-image')
    expect(text).toMatch(/0\.000003 USD for text-to-image; ada has 5\.00 USD for any feature/)
    expect((await ada('grant list')).text).toMatch(
      /0\.000003 +0\.000003 +manual +text-to-image +never/,
    )
  })

  it("counts towards the app's quota", async () => {
    const { code, text } = await ada('grant give --usd-micros 10000001')
    expect([code, text]).toEqual([1, expect.stringContaining('quota manual credit per app')])
  })

  it.each([
    ['grant', 2, 'grant takes list, give'],
    ['grant give --user ada', 2, 'grant give needs --usd-micros'],
    ['grant give --user ada --usd-micros -1', 1, '--usd-micros must be a positive integer'],
    ['grant give --user ada --usd-micros=-1', 1, '--usd-micros must be a positive integer'],
    ['grant give --user ada --usd-micros 0', 1, '--usd-micros must be a positive integer'],
    ['grant give --user ada --usd-micros 1 --source gift', 1, '--source must be one of: trial'],
    ['grant give --user ada --usd-micros 1 --feature nonsense', 1, '--feature must be one of'],
    ['grant give --user nobody --usd-micros 1', 1, 'no such user'],
    ['grant list --user nobody', 1, 'no such user'],
  ])('refuses "%s" with %i', async (line, code, message) => {
    expect(await run(line)).toEqual({ code, text: expect.stringContaining(message) })
  })
})

describe('tollgate redirect-uri', () => {
  const done = 'https://shop.example/done'

  it('adds, lists and removes addresses for logins and logouts', async () => {
    expect((await run('redirect-uri list')).text).toBe('no redirect URIs\n')
    expect((await run(`redirect-uri add ${done}`)).text).toContain(`login  ${done}`)
    await run('redirect-uri add https://shop.example/bye --logout')
    expect(JSON.parse((await run('redirect-uri list --json')).text)).toEqual({
      login: [done],
      logout: ['https://shop.example/bye'],
    })
    expect((await run(`redirect-uri add ${done}`)).code).toBe(0)
    expect((await run(`redirect-uri remove ${done}`)).text).not.toContain(done)
    expect(await actions()).toEqual(mine('app_updated', 'app_updated', 'app_updated'))
  })

  it('ignores duplicates and limits the number', async () => {
    const uris = Array.from({ length: 24 }, (_, i) => `${done}/${i % 22}`)
    const codes: number[] = []
    for (const uri of uris) codes.push((await run(`redirect-uri add ${uri}`)).code)
    expect(codes.filter((code) => code === 1)).toHaveLength(2)
    expect((await run(`redirect-uri add ${done}/more`)).text).toContain('at most 20')
  })

  it.each([
    ['redirect-uri add', 2, 'redirect-uri add needs one URI'],
    ['redirect-uri add a b', 2, 'needs one URI'],
    ['redirect-uri add http://shop.example/done', 1, 'must be https'],
    ['redirect-uri add https://shop.example/*', 1, 'no wildcard'],
    ['redirect-uri add shop', 1, 'must be absolute'],
    ['redirect-uri remove https://shop.example/none', 1, 'no such URI for login'],
  ])('refuses "%s" with %i', async (line, code, message) => {
    expect(await run(line)).toEqual({ code, text: expect.stringContaining(message) })
  })
})

describe('tollgate member', () => {
  const account = (email: string, ...flags: string[]) =>
    operate('account', 'create', '--email', email, ...flags)

  /** Makes the account a member, like accepting an invitation. */
  async function join(email: string, role: string): Promise<void> {
    await account(email)
    await core.sql.query(
      `insert into members (app_id, account_id, role, created_at)
       select $1, id, $2, now() from accounts where email = $3`,
      [appId, role, email],
    )
  }

  it("invites in the owner's name, and withdraws the invitation", async () => {
    await join('owner@example.com', 'owner')
    const { text } = await run('member put --email Ada@Example.com --role admin')
    expect(text).toMatch(/^ada@example\.com is invited as admin in the name of owner@example\.com/)
    expect((await run('member list')).text).toMatch(/ada@example\.com +admin +\S+ +invited, until/)
    const removed = await run('member remove --email ADA@example.com')
    expect(removed.text).toBe('the invitation of ada@example.com is withdrawn\n')
    expect(await actions()).toEqual(mine('member_invited', 'member_invitation_withdrawn'))
  })

  it('changes the role of a member, and ends a membership', async () => {
    await join('boss@example.com', 'owner')
    await join('bob@example.com', 'viewer')
    const changed = await run('member put --email bob@example.com --role admin')
    expect(changed.text).toBe('bob@example.com is admin now\n')
    expect(JSON.parse((await run('member list --json')).text).members).toMatchObject([
      { role: 'owner' },
      { email: 'bob@example.com', role: 'admin' },
    ])
    const removed = await run('member remove --email bob@example.com --json')
    expect(JSON.parse(removed.text)).toEqual({ email: 'bob@example.com', removed: 'member' })
    expect(await actions()).toEqual(mine('member_role_changed', 'member_removed'))
  })

  it('keeps the last owner', async () => {
    await join('last@example.com', 'owner')
    const { code, text } = await run('member remove --email last@example.com')
    expect([code, text]).toEqual([1, expect.stringContaining('must have an owner')])
  })

  it('invites in the name of a platform admin if the app has no owner, and otherwise fails', async () => {
    const invite = () => run('member put --email new@example.com --role owner')
    expect((await invite()).text).toContain('no owner who could invite')
    await account('admin@example.com', '--platform-admin')
    expect((await invite()).text).toContain('in the name of admin@example.com')
    await core.sql.query("delete from accounts where email = 'admin@example.com'")
  })

  it.each([
    ['member', 2, 'member takes list, put, remove'],
    ['member put --email ada@example.com', 2, 'member put needs --role'],
    ['member put --email ada --role admin', 1, '--email must be an e-mail address'],
    ['member put --email a@example.com --role boss', 1, '--role must be one of: owner'],
    ['member remove', 2, 'member remove needs --email'],
    ['member remove --email ada', 2, '--email must be an e-mail address'],
    ['member remove --email ada@example.com', 1, 'neither a member nor an invitation'],
  ])('refuses "%s" with %i', async (line, code, message) => {
    expect(await run(line)).toEqual({ code, text: expect.stringContaining(message) })
  })
})

describe('tollgate signer-secret', () => {
  it("creates, lists and revokes secrets of an app's own signer", async () => {
    expect((await run('signer-secret list')).text).toBe('the app has no signer of its own\n')
    const made = JSON.parse((await run('signer-secret create --key once --json')).text)
    expect(JSON.parse((await run('signer-secret create --key once --json')).text)).toEqual(made)
    const { text } = await run('signer-secret create --purpose events --overlap-seconds 60')
    expect(text).toMatch(/^secret for events \(shown once\): svc_\S+\nolder secrets end at \d{4}-/)
    const secrets = JSON.parse((await run('signer-secret list --json')).text)
    expect(secrets).toMatchObject([{ id: made.details.id }, { purpose: 'events' }])
    expect((await run(`signer-secret revoke ${made.details.id}`)).code).toBe(0)
    expect((await run('signer-secret list')).text).not.toContain(made.details.id)
    expect(await actions()).toEqual(
      mine('signer_secret_created', 'signer_secret_created', 'signer_secret_revoked'),
    )
  })

  it.each([
    ['signer-secret', 2, 'signer-secret takes list, create, revoke'],
    ['signer-secret create --purpose jokes', 1, '--purpose must be decisions or events'],
    ['signer-secret create --overlap-seconds soon', 2, '--overlap-seconds must be a whole number'],
    [
      'signer-secret create --overlap-seconds 9999999',
      1,
      '--overlap-seconds must be from 0 to 2592000',
    ],
    ['signer-secret revoke', 2, 'needs one ID'],
    ['signer-secret revoke 0123456789ab', 1, 'no such signer secret'],
  ])('refuses "%s" with %i', async (line, code, message) => {
    expect(await run(line)).toEqual({ code, text: expect.stringContaining(message) })
  })
})
