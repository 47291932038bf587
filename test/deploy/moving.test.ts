import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it, vi } from 'vitest'
import { type Service, startService } from '../../deploy/all-in-one/service.ts'
import { basic } from '../../deploy/cli/client.ts'
import { expectRightBooks } from '../core/balances/ledger/owner-world.ts'
import { eventOf } from '../core/books/support.ts'
import { serviceToken, startTestCore } from '../core/support.ts'
import { createDatabase } from '../support/run/postgres.ts'
import { registerSecret } from '../support/run/secrecy.ts'
import { tollgate } from './cli/support.ts'

const folder = await mkdtemp(join(tmpdir(), 'tollgate-moving-'))
afterAll(() => rm(folder, { recursive: true }))

const passphrase = registerSecret('a passphrase of the moving tests')
const central = {
  KEY_ENCRYPTION_KEY: registerSecret('key-encryption-key-of-the-central-deployment'),
  SECRET_PEPPERS: `p1:${registerSecret('pepper-of-the-central-deployment-0123456789')}`,
}

/** Starts the all-in-one service with its embedded database, and sets the commands to it. */
async function startEmbedded(name: string): Promise<Service> {
  const dataDir = join(folder, name)
  const ports = ['CORE_PORT', 'PLATFORM_PORT', 'BUILDER_PORT', 'SIDECAR_PORT', 'ADMIN_PORT']
  const service = await startService({
    ...Object.fromEntries(ports.map((port) => [port, '0'])),
    TOLLGATE_DATA_DIR: dataDir,
    RATE_FIXED: '3000',
    PUBLIC_URL: 'https://moving.example',
  })
  const { webhookSecret, m2mClientSecret, ownerPassword } = service.quickstart
  for (const secret of [webhookSecret, m2mClientSecret, ownerPassword]) registerSecret(secret)
  return service
}

const command = (env: Readonly<Record<string, string>>, ...argv: string[]) => {
  vi.unstubAllEnvs()
  for (const [name, value] of Object.entries({ PASSPHRASE: passphrase, ...env }))
    vi.stubEnv(name, value)
  return tollgate(...argv)
}

async function call(service: Service, request: string, body?: object) {
  const [method = '', path = ''] = request.split(' ')
  const { platformUrl, m2mClientId, m2mClientSecret } = service.quickstart
  const headers = { authorization: basic(m2mClientId, m2mClientSecret) }
  const response = await fetch(platformUrl + path, {
    method,
    headers: { ...headers, ...(body && { 'content-type': 'application/json' }) },
    body: body ? JSON.stringify(body) : null,
  })
  return JSON.parse(await response.text())
}

/** Pushes tickets of a user to the sidecar, as a signer does. */
async function pushTickets({ quickstart }: Service, count: number): Promise<number> {
  const events = Array.from({ length: count }, (_, n) =>
    eventOf({
      auth_id: `${quickstart.clientId}:ada`,
      current_time: new Date().toISOString(),
      computed_fee: '1000000000000',
      sequence_number: n,
    }),
  )
  const { status } = await fetch(`${quickstart.sidecarUrl}/events`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${quickstart.webhookSecret}`,
      'content-type': 'application/x-ndjson',
    },
    body: events.join('\n'),
  })
  return status
}

const balanceOf = async (service: Service): Promise<string> => {
  const path = `/api/v1/builder/apps/${service.quickstart.clientId}/usage/balance?externalUserId=ada`
  return JSON.stringify(await call(service, `GET ${path}`))
}

describe('a deployment', () => {
  it('moves from the embedded database to another one, and back', async () => {
    const first = await startEmbedded('first')
    const users = `/api/v1/apps/${first.quickstart.clientId}/users`
    await call(first, `POST ${users}`, { externalUserId: 'ada' })
    const { apiKey } = await call(first, `POST ${users}/ada/keys`)
    registerSecret(apiKey)
    const untouched = await balanceOf(first)
    expect(await pushTickets(first, 20)).toBe(202)
    await vi.waitFor(async () => expect(await balanceOf(first)).not.toBe(untouched), 10_000)
    const balance = await balanceOf(first)
    const out = join(folder, 'first.backup')
    const dataDir = { TOLLGATE_DATA_DIR: first.dataDir }
    expect(await command(dataDir, 'backup', '--out', out)).toMatchObject({ code: 0 })
    await first.stop()
    // The service does not run now, so the command starts the database.
    expect(await command(dataDir, 'backup', '--out', out, '--force')).toMatchObject({ code: 0 })

    const database = await createDatabase()
    const settings = {
      ...central,
      DATABASE_URL: database.url,
      PUBLIC_URL: 'https://moving.example',
    }
    const nowhere = { TOLLGATE_DATA_DIR: join(folder, 'none') }
    expect(await command({ ...settings, ...nowhere }, 'restore', out)).toMatchObject({ code: 0 })
    const core = await startTestCore(settings)
    vi.stubEnv('CORE_TARGET', core.core.target)
    vi.stubEnv('CORE_TOKEN', serviceToken)
    await expectRightBooks()
    expect(await core.as().verifyApiKey({ apiKey })).toMatchObject({
      identity: { externalUserId: 'ada' },
    })
    const back = join(folder, 'back.backup')
    expect(await command({ ...settings, ...nowhere }, 'backup', '--out', back)).toMatchObject({
      code: 0,
    })
    await core.stop()
    await database.drop()

    const empty = { TOLLGATE_DATA_DIR: join(folder, 'second') }
    expect(await command(empty, 'restore', back)).toMatchObject({ code: 0 })
    const second = await startEmbedded('second')
    vi.stubEnv('TOLLGATE_DATA_DIR', second.dataDir)
    vi.stubEnv('CORE_TARGET', second.quickstart.coreTarget)
    await expectRightBooks()
    expect(second.quickstart.clientId).toBe(first.quickstart.clientId)
    expect(await balanceOf(second)).toBe(balance)
    const again = await command(empty, 'restore', back)
    expect(again).toMatchObject({ code: 1, text: expect.stringContaining('is in use by process') })
    await second.stop()
  }, 120_000)
})
