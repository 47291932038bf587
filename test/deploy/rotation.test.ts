import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { basic, connectCore } from '../../deploy/cli/client.ts'
import { openPool, secret, type Stops, startParts } from '../support/deployment/parts.ts'
import { type RunningProcess, freePorts, runProcess } from '../support/deployment/processes.ts'
import { createDatabase } from '../support/run/postgres.ts'
import { registerSecret } from '../support/run/secrecy.ts'
import { tollgate } from './cli/support.ts'

const newSecret = (): string => registerSecret(secret())
/** The settings in files, each shared by all processes that read it. */
const files = {
  DATABASE_URL: '',
  KEY_ENCRYPTION_KEY: newSecret(),
  KEY_ENCRYPTION_KEYS_OLD: newSecret(),
  SECRET_PEPPERS: `p1:${newSecret()}`,
  WEBHOOK_SECRET: newSecret(),
}
const token = newSecret()
const role = `rotation_${secret().slice(0, 8)}`

let folder: string
let world: Awaited<ReturnType<typeof start>>
let stop: () => Promise<void>

const pathOf = (name: keyof typeof files): string => join(folder, name)
async function set(name: keyof typeof files, value: string): Promise<void> {
  files[name] = value
  await writeFile(pathOf(name), `${value}\n`)
}

beforeAll(async () => {
  const started = await startParts(start)
  ;({ stop } = started)
  world = started
}, 120_000)
afterAll(() => stop())

async function start(stops: Stops) {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-rotation-'))
  stops.push(() => rm(folder, { recursive: true }))
  const database = await createDatabase()
  stops.push(database.drop)
  const sql = openPool(stops, database.url)
  const address = new URL(database.url)
  const urlWith = (password: string): string =>
    Object.assign(new URL(database.url), { username: role, password: registerSecret(password) })
      .href
  const password = secret()
  // A role that can use everything of the owner, but has its own password.
  await sql.query(`create role ${role} login password '${password}' in role ${address.username}`)
  await sql.query(`alter role ${role} set role ${address.username}`)
  stops.push(() => sql.query(`drop role ${role}`))
  for (const [name, value] of Object.entries({ ...files, DATABASE_URL: urlWith(password) }))
    await set(name as keyof typeof files, value)
  const ports = (await freePorts(9)).map(String)
  const [first = '', second = '', platform = '', builder = '', sidecar = '', ...admin] = ports
  const shared = { CORE_TOKEN: token, PLATFORM_PORT: platform, RATE_FIXED: '3000' }
  const core = (port: string, adminPort = '') => ({
    ...shared,
    CORE_PORT: port,
    CORE_ADMIN_PORT: adminPort,
    APP_CREATION: 'accounts',
    DATABASE_URL_FILE: pathOf('DATABASE_URL'),
    KEY_ENCRYPTION_KEY_FILE: pathOf('KEY_ENCRYPTION_KEY'),
    KEY_ENCRYPTION_KEYS_OLD_FILE: pathOf('KEY_ENCRYPTION_KEYS_OLD'),
    SECRET_PEPPERS_FILE: pathOf('SECRET_PEPPERS'),
  })
  const processes: RunningProcess[] = []
  async function run(
    name: 'core' | 'gateway' | 'sidecar',
    env: Readonly<Record<string, string>>,
  ): Promise<RunningProcess> {
    const running = await runProcess({ name, env })
    stops.push(running.stop)
    processes.push(running)
    return running
  }
  const cores = [
    await run('core', core(first, admin[0])),
    await run('core', core(second, admin[1])),
  ]
  const target = `127.0.0.1:${first}`
  await run('gateway', {
    ...shared,
    CORE_TARGET: target,
    BUILDER_PORT: builder,
    GATEWAY_ADMIN_PORT: admin[2] ?? '',
  })
  const signing = await run('sidecar', {
    ...shared,
    CORE_TARGET: `127.0.0.1:${second}`,
    SIDECAR_PORT: sidecar,
    SIDECAR_ADMIN_PORT: admin[3] ?? '',
    WEBHOOK_SECRET_FILE: pathOf('WEBHOOK_SECRET'),
  })
  const operator = connectCore({ target, token })
  stops.push(async () => operator.close())
  const app = await operator.apps.createApp({
    name: 'Rotation',
    ownerEmail: 'owner@rotation.example',
    ownerPassword: undefined,
    starterUsdMicros: undefined,
  })
  registerSecret(app.m2mClientSecret)
  const urls = { platform: `http://127.0.0.1:${platform}`, sidecar: `http://127.0.0.1:${sidecar}` }
  return { sql, urlWith, cores, signing, processes, target, app, urls, second }
}

/** Calls that need every rotated secret; each answer must be one of success. */
const calls = {
  /** Hashes a new secret with the first pepper, and seals the reply. */
  createKey: (n: number) =>
    callApi(`/users/ada/keys`, { label: `key ${n}` }, { 'idempotency-key': `rotation-${n}` }),
  /** Signs, with a key that core opened. */
  mintToken: () => callApi(`/users/ada/token`, {}),
  /** Verifies a key that was stored with the first pepper of the test. */
  authorize: () =>
    fetch(`${world.urls.sidecar}/authorize`, {
      method: 'POST',
      headers: { authorization: `Bearer ${presented}` },
      body: '{}',
    }),
}
let presented = ''

const callApi = (
  path: string,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> =>
  fetch(`${world.urls.platform}/api/v1/apps/${world.app.clientId}${path}`, {
    method: 'POST',
    headers: {
      authorization: basic(world.app.m2mClientId, world.app.m2mClientSecret),
      'content-type': 'application/json',
      ...headers,
    },
    body: JSON.stringify(body),
  })

/** Repeats all calls until `stop`, which returns the number of each status. */
function startTraffic() {
  const traffic = { isOver: false, rounds: 0, gate: Promise.resolve() }
  const running = new Set<Promise<unknown>>()
  const statuses = new Map<string, number>()
  const loops = Object.entries(calls).map(async ([name, call]) => {
    for (let n = 0; !traffic.isOver; n++) {
      await traffic.gate
      const answer = call(n)
      running.add(answer)
      const { status } = await answer.finally(() => running.delete(answer))
      const label = `${name} ${status}`
      statuses.set(label, (statuses.get(label) ?? 0) + 1)
      traffic.rounds += 1
      await sleep(5)
    }
  })
  return {
    /** Waits for calls that begin after now. */
    more: async () => {
      const enough = traffic.rounds + 12
      await vi.waitFor(() => expect(traffic.rounds).toBeGreaterThan(enough), 10_000)
    },
    /** Runs `work` while no call runs. */
    between: async (work: () => Promise<void>) => {
      const { promise, resolve } = Promise.withResolvers<void>()
      traffic.gate = promise
      await Promise.all(running)
      await work()
      resolve()
    },
    stop: async () => {
      traffic.isOver = true
      await Promise.all(loops)
      return Object.fromEntries(statuses)
    },
  }
}

async function reloadCores(...names: readonly (keyof typeof files)[]): Promise<void> {
  for (const core of world.cores)
    expect(await core.reload()).toContain(`"reloaded":${JSON.stringify(names)}`)
}

const operate = (...argv: string[]) => {
  vi.stubEnv('CORE_TOKEN', token)
  return tollgate(...argv, '--target', world.target)
}

describe('a rotation under traffic', () => {
  it('of all secrets refuses no call', async () => {
    const { sql } = world
    await callApi('/users', { externalUserId: 'ada' })
    presented = files.WEBHOOK_SECRET
    const traffic = startTraffic()
    onTestFinished(async () => void (await traffic.stop()))
    await traffic.more()

    // 1. The new key opens everywhere before it seals anywhere.
    const [old, fresh] = [files.KEY_ENCRYPTION_KEY, newSecret()]
    await set('KEY_ENCRYPTION_KEYS_OLD', fresh)
    await reloadCores('KEY_ENCRYPTION_KEYS_OLD')
    await set('KEY_ENCRYPTION_KEY', fresh)
    await set('KEY_ENCRYPTION_KEYS_OLD', old)
    await reloadCores('KEY_ENCRYPTION_KEY', 'KEY_ENCRYPTION_KEYS_OLD')
    await traffic.more()
    expect(await operate('keys', 'rewrap')).toMatchObject({ code: 0 })
    await set('KEY_ENCRYPTION_KEYS_OLD', newSecret())
    await reloadCores('KEY_ENCRYPTION_KEYS_OLD')
    await traffic.more()

    // 2. The same for peppers; an old one stays as long as its secrets.
    const [first, second] = [files.SECRET_PEPPERS, `p2:${newSecret()}`]
    await set('SECRET_PEPPERS', `${first},${second}`)
    await reloadCores('SECRET_PEPPERS')
    await set('SECRET_PEPPERS', `${second},${first}`)
    await reloadCores('SECRET_PEPPERS')
    await traffic.more()

    // 3. The signer's secret.
    const next = newSecret()
    await set('WEBHOOK_SECRET', `${files.WEBHOOK_SECRET},${next}`)
    expect(await world.signing.reload()).toContain('"reloaded":["WEBHOOK_SECRET"]')
    presented = next
    await traffic.more()
    await set('WEBHOOK_SECRET', next)
    await world.signing.reload()

    // 4. The password of the database: new connections find the one that the server accepts.
    const password = secret()
    await set('DATABASE_URL', world.urlWith(password))
    await reloadCores('DATABASE_URL')
    await traffic.between(endConnections)
    await traffic.more()
    await sql.query(`alter role ${role} password '${password}'`)
    await traffic.between(endConnections)
    await traffic.more()

    const statuses = await traffic.stop()
    expect(Object.keys(statuses).toSorted()).toEqual([
      'authorize 200',
      'createKey 201',
      'mintToken 200',
    ])
    const { rows } = await sql.query<{ id: string }>(
      'select distinct pepper_id as id from api_keys order by 1',
    )
    expect(rows.map(({ id }) => id)).toEqual(['p1', 'p2'])
    // A background task may have used a connection that this test ended.
    const errors = world.processes.flatMap((each) => each.errors)
    expect(
      errors.filter((line) => !/57P01|Client has encountered a connection error/.test(line)),
    ).toEqual([])
  }, 90_000)

  it('needs a restart for another host of the database', async () => {
    const moved = Object.assign(new URL(files.DATABASE_URL), { hostname: 'elsewhere.example' }).href
    await set('DATABASE_URL', moved)
    for (const core of world.cores)
      expect(await core.reload()).toContain('"reloaded":[],"needRestart":["DATABASE_URL"]')
  })
})

/** Ends the connections of the cores to the database, between two calls. */
async function endConnections(): Promise<void> {
  await world.sql.query(
    `select pg_terminate_backend(pid) from pg_stat_activity
     where usename = $1 and application_name = 'tollgate-core'`,
    [role],
  )
  await sleep(50)
}
