import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { type Quickstart, quickstartPath } from '../../../deploy/local/data-dir.ts'
import { ensureQuickstart } from '../../../deploy/all-in-one/quickstart.ts'
import { welcome } from '../../../deploy/all-in-one/welcome.ts'
import { basic, connectCore } from '../../../deploy/cli/client.ts'
import { createDemoApi } from '../../../deploy/demo/api.ts'
import { type TestCore, serviceToken, startTestCore } from '../../core/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'

let core: TestCore
let dataDir: string
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'tollgate-quickstart-'))
})
afterEach(() => rm(dataDir, { recursive: true, force: true }))

const url = 'http://127.0.0.1:9'
const addressOf = ({ target }: { target: string }) => ({
  target,
  token: serviceToken,
  tls: undefined,
})

/** Does the same as `npm start` for its folder once core runs. */
async function start(database: Quickstart['database'] = 'embedded'): Promise<Quickstart> {
  const { target } = core.core
  const address = addressOf({ target })
  const urls = { platformUrl: url, builderUrl: url, sidecarUrl: url, adminUrl: url, issuer: url }
  const quickstart = await ensureQuickstart({
    dataDir,
    operator: address,
    gateway: address,
    webhookSecret: 'w',
    addresses: { ...urls, coreTarget: target },
    database,
  })
  registerSecret(quickstart.m2mClientSecret)
  registerSecret(quickstart.ownerPassword)
  return quickstart
}

const demoApps = async (): Promise<string[]> =>
  (
    await core.sql.query(
      "select c.client_id from apps a join clients c on c.app_id = a.id and c.kind = 'public' where a.name = 'Demo' and a.status = 'active'",
    )
  ).rows.map(({ client_id: id }) => id)

async function works({ clientId, m2mClientId, m2mClientSecret }: Quickstart): Promise<boolean> {
  const calls = connectCore(addressOf(core.core))
  const request = { clientId, kind: 'm2m_basic', scope: undefined }
  return calls.callers
    .checkCaller(request, { authorization: basic(m2mClientId, m2mClientSecret) })
    .then(
      () => true,
      () => false,
    )
    .finally(calls.close)
}

/** Makes the demo app's secrets invalid, like a rotation a day ago. */
const endSecrets = ({ m2mClientId }: Quickstart) =>
  core.sql.query('update client_secrets set expires_at = created_at where client_id = $1', [
    m2mClientId,
  ])

describe('the demo app of npm start', () => {
  it('keeps its id and credentials', async () => {
    const first = await start()
    expect(await start()).toEqual(first)
    expect(await demoApps()).toEqual([first.clientId])
  })

  it('gets a new secret when the one in the file no longer works', async () => {
    const first = await start()
    await endSecrets(first)
    const second = await start()
    expect(second).toEqual({ ...first, m2mClientSecret: expect.any(String) })
    expect(second.m2mClientSecret).not.toBe(first.m2mClientSecret)
    expect(await works(second)).toBe(true)
    expect(await demoApps()).toHaveLength(1)
    const file = JSON.parse(await readFile(quickstartPath(dataDir), 'utf8'))
    expect(file.m2mClientSecret).toBe(second.m2mClientSecret)
  })

  it('gets a new secret when the app has the maximum number', async () => {
    const first = await start()
    await endSecrets(first)
    const calls = connectCore(addressOf(core.core))
    const { clientId } = first
    for (let secret = 0; secret < 5; secret++)
      await calls.management.rotateClientSecret({
        clientId,
        revokeOld: false,
        keepKeys: false,
        idempotencyKey: undefined,
      })
    calls.close()
    expect(await works(await start())).toBe(true)
    expect(await demoApps()).toHaveLength(1)
  })

  it('is found again, with a new owner password, when the file is lost', async () => {
    const first = await start()
    await writeFile(quickstartPath(dataDir), '{}')
    const second = await start()
    expect([second.clientId, second.ownerEmail]).toEqual([first.clientId, first.ownerEmail])
    expect(second.ownerPassword).not.toBe(first.ownerPassword)
    expect(await works(second)).toBe(true)
    expect(await demoApps()).toHaveLength(1)
  })

  it('is kept when another data directory uses its external database', async () => {
    const first = await start('external')
    await writeFile(quickstartPath(dataDir), '{}')
    const second = await start('external')
    expect(second.clientId).not.toBe(first.clientId)
    expect(await works(first)).toBe(true)
    await core.sql.query(
      "update apps set status = 'deleted', deleted_at = now() where id in (select app_id from clients where client_id = $1)",
      [second.clientId],
    )
    await writeFile(quickstartPath(dataDir), '{}')
  })

  it("is not confused with another owner's app of the same name", async () => {
    await core.sql.query(
      "update apps set status = 'deleted', deleted_at = now() where name = 'Demo'",
    )
    const calls = connectCore(addressOf(core.core))
    const other = await calls.apps.createApp({
      name: 'Demo',
      ownerEmail: 'me@example.com',
      ownerPassword: undefined,
      starterUsdMicros: undefined,
    })
    calls.close()
    const made = await start()
    expect(made.clientId).not.toBe(other.clientId)
    await core.sql.query(
      "update apps set name = 'Other' where name = 'Demo' and id in (select app_id from clients where client_id = $1)",
      [other.clientId],
    )
  })

  it('does not prevent the start when its owner has another address', async () => {
    const { ownerEmail } = await start()
    await core.sql.query("update accounts set email = 'new@example.com' where email = $1", [
      ownerEmail,
    ])
    expect(await start()).toMatchObject({ ownerEmail })
    await core.sql.query("update accounts set email = $1 where email = 'new@example.com'", [
      ownerEmail,
    ])
  })
})

describe('the text of npm start', () => {
  it("shows the dashboard, the owner's account and the API document", async () => {
    const quickstart = { ...(await start()), issuer: 'https://svc.example/api/v1/oidc' }
    const service = { dataDir, logFile: join(dataDir, 'log'), quickstart, parts: {} }
    const text = welcome({ ...service, startedInMs: 1, warnings: [], stop: async () => {} })
    expect(text).toContain('https://svc.example/app\n')
    expect(text).toContain(`as ${quickstart.ownerEmail}\n`)
    expect(text).toContain(`${url}/api/v1/docs\n`)
    expect(text).not.toContain(quickstart.ownerPassword)
  })
})

describe('npm run demo', () => {
  it('explains that the service refuses the secret', async () => {
    const quickstart = await start()
    vi.stubGlobal('fetch', async () => new Response('{}', { status: 401 }))
    await expect(createDemoApi(quickstart).createUser('ada')).rejects.toThrow(
      /refuses the demo app's secret.*run npm start, which writes a new secret of the same app/,
    )
    vi.unstubAllGlobals()
  })
})
