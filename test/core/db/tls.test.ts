import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, copyFileSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from 'pg'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { startCore } from '../../../core/app.ts'
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../../core/db/embedded/embedded.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { tollgate } from '../../deploy/cli/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { configOf } from '../support.ts'

const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-'))
const path = (name: string): string => join(folder, name)
let postgres: EmbeddedPostgres

/** Makes a certificate for `localhost` that is its own authority. */
function makeCertificate(name: string): void {
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost']
  const files = ['-keyout', path(`${name}.key`), '-out', path(`${name}.crt`)]
  execFileSync('openssl', ['req', '-x509', ...key, '-days', '2', ...names, ...files], {
    stdio: 'pipe',
  })
}

beforeAll(async () => {
  // If this process is root, PostgreSQL runs as another user, which needs access to the folder.
  chmodSync(folder, 0o711)
  postgres = await startEmbeddedPostgres({ dataDir: path('data'), settings: { fsync: 'off' } })
  registerSecret(new URL(postgres.url).password)
  makeCertificate('server')
  makeCertificate('other')
  const cluster = path('data/cluster')
  const { uid, gid } = statSync(cluster)
  for (const name of ['server.crt', 'server.key']) {
    copyFileSync(path(name), join(cluster, name))
    chmodSync(join(cluster, name), 0o600)
    chownSync(join(cluster, name), uid, gid)
  }
  await query(postgres.superuserUrl, 'alter system set ssl = on')
  await query(postgres.superuserUrl, 'select pg_reload_conf()')
})
afterAll(async () => {
  await postgres.stop()
  rmSync(folder, { recursive: true, force: true })
})

async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query<Record<string, unknown>>(text)).rows
  } finally {
    await client.end()
  }
}

/** The service's address of the database, at `host`, with parameters. */
function addressAt(host: string, parameters: Readonly<Record<string, string>>): string {
  const url = Object.assign(new URL(postgres.url), { hostname: host })
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value)
  return url.href
}

const verified = () => ({ sslmode: 'verify-full', sslrootcert: path('server.crt') })

async function migrateAt(url: string) {
  vi.stubEnv('DATABASE_URL', url)
  onTestFinished(() => void vi.unstubAllEnvs())
  return tollgate('migrate')
}

describe('TLS to PostgreSQL', () => {
  it('migrates, and encrypts each connection of core, with the authority of the address', async () => {
    const url = addressAt('localhost', verified())
    expect(await migrateAt(url)).toMatchObject({ code: 0 })
    const config = configOf({ DATABASE_URL: url, MIGRATE: 'off' })
    const core = await startCore(config, { log: silentLog(), metrics: createMetrics('core') })
    onTestFinished(() => core.stop())
    const connections = await query(
      postgres.superuserUrl,
      `select ssl, count(*)::int as count
       from pg_stat_ssl join pg_stat_activity using (pid)
       where usename <> current_user
       group by ssl`,
    )
    expect(connections).toEqual([{ ssl: true, count: expect.any(Number) }])
  })

  it.each([
    { of: 'another authority', host: 'localhost', ca: path('other.crt'), reason: /self-signed/ },
    { of: 'another host', host: '127.0.0.1', ca: path('server.crt'), reason: /IP: 127\.0\.0\.1/ },
    { of: 'an unknown authority', host: 'localhost', ca: '', reason: /self-signed/ },
  ])('refuses a certificate of $of, in one line', async ({ host, ca, reason }) => {
    const url = addressAt(host, { ...verified(), sslrootcert: ca })
    const { code, text } = await migrateAt(url)
    expect([code, text]).toEqual([1, expect.stringMatching(/^tollgate: DATABASE_URL: .*\n$/)])
    expect(text).toMatch(reason)
  })
})
