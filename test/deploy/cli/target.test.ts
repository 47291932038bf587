import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { type TestCore, observedRate, serviceToken, startTestCore } from '../../core/support.ts'
import { tollgate } from './support.ts'

let core: TestCore
let dataDir: string
beforeAll(async () => {
  core = await startTestCore(observedRate)
  // The observed rate is then too old to price anything.
  core.clock.advance(30 * 86_400_000)
})
afterAll(() => core.stop())
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'tollgate-target-'))
  vi.stubEnv('TOLLGATE_DATA_DIR', dataDir)
})
afterEach(async () => {
  vi.unstubAllEnvs()
  vi.restoreAllMocks()
  await rm(dataDir, { recursive: true, force: true })
})

/** Writes the files of `npm start`, for a service with the core of this test. */
async function quickstart({
  token = serviceToken,
  database = 'embedded',
  clientId = 'clientId',
}: { token?: string; database?: string; clientId?: string } = {}): Promise<void> {
  const urls = ['platformUrl', 'builderUrl', 'sidecarUrl', 'adminUrl', 'issuer']
  const ids = ['clientId', 'm2mClientId', 'm2mClientSecret', 'webhookSecret', 'ownerEmail']
  const fields = [...urls.map((name) => [name, 'http://127.0.0.1:9']), ...ids.map((id) => [id, id])]
  const file = {
    ...Object.fromEntries(fields),
    clientId,
    ownerPassword: 'p',
    coreTarget: core.core.target,
  }
  await writeFile(join(dataDir, 'quickstart.json'), JSON.stringify({ ...file, database }))
  await writeFile(join(dataDir, 'secrets.json'), JSON.stringify({ CORE_TOKEN: token }))
}

const elsewhere = () => {
  vi.stubEnv('CORE_TARGET', core.core.target)
  vi.stubEnv('CORE_TOKEN', serviceToken)
}

const user = ['--app', 'app_1', '--user', 'ada']
const writes = [
  'app create --name Shop',
  'account create --email ada@example.com',
  'account reset-password --email ada@example.com',
  'account change --email ada@example.com --platform-admin yes',
  'signer create north --all-apps',
  'signer rotate north',
  'signer apps north --all-apps',
  'signer remove north',
  'keys rotate',
  'keys rewrap',
  'quota set --app app_1 --usd-micros 1',
  'quota set --email ada@example.com --apps 3',
  'billing cut --app app_1 10',
  'billing mode --app app_1 merchant',
  'billing cap --app app_1 3',
  'billing platform-owned --app app_1 yes',
  'billing serves-every-app --app app_1 yes',
  'plan create --app app_1 --name Pro',
  'plan update 1 --app app_1 --name Pro',
  'plan delete 1 --app app_1',
  'catalog refresh',
  'catalog add live',
  'catalog remove live',
  'rate set 3000',
  `adjust ${user.join(' ')} --usd-micros 1 --reason x`,
  `limits set ${user.join(' ')} --calls-per-minute 1`,
  `limits clear ${user.join(' ')}`,
  `user put ${user.join(' ')} --email ada@example.com`,
  `user deactivate ${user.join(' ')}`,
  `user activate ${user.join(' ')}`,
  `grant give ${user.join(' ')} --usd-micros 1`,
  'redirect-uri add https://shop.example/done --app app_1',
  'redirect-uri remove https://shop.example/done --app app_1',
  'signer-secret create --app app_1',
  'signer-secret revoke 0123456789ab --app app_1',
  'member put --app app_1 --email ada@example.com --role admin',
  'member remove --app app_1 --email ada@example.com',
  'quarantine attribute 1 --app app_1 --user ada',
  'quarantine redrive 1',
  'quarantine redrive --reason unknown_app',
  'quarantine discard 1 --reason x',
  'rebuild',
  'outbox retry',
  'archive',
]

describe('a command that writes', () => {
  it.each(writes)('refuses a deployment other than its own quickstart: %s', async (line) => {
    elsewhere()
    const { code, text } = await tollgate(...line.split(' '))
    expect([code, text]).toEqual([1, expect.stringContaining(`--target ${core.core.target}`)])
    expect(text).toContain('this would write')
  })

  it('writes to an explicit --target', async () => {
    elsewhere()
    const { code } = await tollgate('app', 'create', '--name', 'Shop', '--target', core.core.target)
    expect(code).toBe(0)
  })

  it('writes to the quickstart of its folder without --target', async () => {
    await quickstart()
    expect((await tollgate('app', 'create', '--name', 'Shop')).code).toBe(0)
  })

  it('refuses another deployment at the address of the quickstart', async () => {
    await quickstart({ token: 'another-token-of-the-folder-0123456789' })
    vi.stubEnv('CORE_TOKEN', serviceToken)
    expect((await tollgate('app', 'create', '--name', 'Shop')).text).toContain('would write')
  })

  it('reads from any deployment', async () => {
    elsewhere()
    expect((await tollgate('app', 'list')).code).toBe(0)
    expect((await tollgate('status')).code).toBe(0)
  })
})

describe('a command that needs an app', () => {
  it('uses the demo app of its folder with the core of that folder', async () => {
    const { clientId } = await core.newApp()
    await quickstart({ clientId })
    expect((await tollgate('user', 'put', '--user', 'ada')).code).toBe(0)
    expect((await tollgate('app', 'show')).text).toContain(clientId)
    const { rows } = await core.sql.query(
      'select u.external_user_id from end_users u join clients c using (app_id) where c.client_id = $1',
      [clientId],
    )
    expect(rows).toEqual([{ external_user_id: 'ada' }])
  })

  it('requires --app for another deployment, and without a demo app', async () => {
    const refusal = { code: 2, text: expect.stringContaining('user list needs --app') }
    expect(await tollgate('user', 'list')).toEqual(refusal)
    await quickstart()
    expect(await tollgate('user', 'list', '--target', core.core.target)).toEqual(refusal)
    vi.stubEnv('CORE_TARGET', core.core.target)
    expect(await tollgate('user', 'list')).toEqual(refusal)
  })
})

describe('the demo', () => {
  const rates = async () => (await core.sql.query('select * from rates')).rows.length

  it('refuses a core of another folder', async () => {
    await quickstart()
    vi.stubEnv('CORE_TARGET', 'core.example:50051')
    expect(await tollgate('demo')).toEqual({
      code: 1,
      text: expect.stringContaining('core.example:50051'),
    })
    vi.unstubAllEnvs()
  })

  it('refuses another deployment at the address of the quickstart', async () => {
    await quickstart({ token: 'another-token-of-the-folder-0123456789' })
    vi.stubEnv('CORE_TOKEN', serviceToken)
    expect((await tollgate('demo')).text).toContain('would write')
  })

  it.each([[[]], [['--target']]])(
    'sets no price in a database that others may share (%s)',
    async (flags: string[]) => {
      await quickstart({ database: 'external' })
      const before = await rates()
      const { code, text } = await tollgate('demo', ...flags.flatMap((f) => [f, core.core.target]))
      expect([code, text]).toEqual([1, expect.stringContaining('./tollgate rate set')])
      expect(await rates()).toBe(before)
    },
  )
})
