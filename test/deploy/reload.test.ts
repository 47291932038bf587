import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCore } from '../../deploy/cli/client.ts'
import { coreSecrets, secret, type Stops, startParts } from '../support/deployment/parts.ts'
import {
  type RunningProcess,
  bareEnv,
  freePorts,
  runProcess,
} from '../support/deployment/processes.ts'
import { createDatabase } from '../support/run/postgres.ts'
import { registerSecret } from '../support/run/secrecy.ts'
import { until } from '../support/waiting.ts'

type Name = 'core' | 'gateway' | 'sidecar' | 'collector'
const names = ['core', 'gateway', 'sidecar', 'collector'] as const
const newSecret = (): string => registerSecret(secret())
const tokens = { old: newSecret(), fresh: newSecret() }
const webhook = { old: newSecret(), fresh: newSecret() }

let folder: string
let target: string
let urls: { readonly sidecar: string; readonly gateway: string }
let processes: Readonly<Record<Name, RunningProcess>>
let stop: () => Promise<void>

const write = (file: string, text: string): Promise<void> => writeFile(join(folder, file), text)
const tokenFile = (name: Name): string => `${name}-token`
const setTokens = (name: Name, ...all: readonly string[]): Promise<void> =>
  write(tokenFile(name), `${all.join(',')}\n`)

beforeAll(async () => {
  const started = await startParts(start)
  ;({ processes, stop } = started)
}, 120_000)
afterAll(() => stop())

async function start(stops: Stops) {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-reload-'))
  stops.push(() => rm(folder, { recursive: true }))
  const database = await createDatabase()
  stops.push(database.drop)
  const ports = (await freePorts(8)).map(String)
  const [
    core = '',
    admin = '',
    platform = '',
    builder = '',
    second = '',
    sidecar = '',
    third = '',
    fourth = '',
  ] = ports
  target = `127.0.0.1:${core}`
  urls = { sidecar: `http://127.0.0.1:${sidecar}`, gateway: `http://127.0.0.1:${second}` }
  await write('webhook', webhook.old)
  const settings: Readonly<Record<Name, Readonly<Record<string, string>>>> = {
    core: { CORE_PORT: core, CORE_ADMIN_PORT: admin, DATABASE_URL: database.url, ...coreSecrets() },
    gateway: { BUILDER_PORT: builder, GATEWAY_ADMIN_PORT: second },
    sidecar: {
      SIDECAR_PORT: sidecar,
      SIDECAR_ADMIN_PORT: third,
      WEBHOOK_SECRET_FILE: join(folder, 'webhook'),
    },
    collector: {
      COLLECTOR_ADMIN_PORT: fourth,
      DATABASE_URL: database.url,
      // Without a broker it starts, and tries again.
      KAFKA_BROKERS: '127.0.0.1:1',
    },
  }
  const run = async (name: Name): Promise<RunningProcess> => {
    await setTokens(name, tokens.old)
    await write(`${name}.yaml`, 'LOG_LEVEL: info\n')
    const running = await runProcess({
      name,
      env: {
        TOLLGATE_CONFIG: join(folder, `${name}.yaml`),
        CORE_TOKEN_FILE: join(folder, tokenFile(name)),
        CORE_TARGET: target,
        PLATFORM_PORT: platform,
        RATE_FIXED: '3000',
        ...settings[name],
      },
    })
    stops.push(running.stop)
    return running
  }
  const parts = { core: await run('core'), gateway: await run('gateway') }
  const others = { sidecar: await run('sidecar'), collector: await run('collector') }
  return { processes: { ...parts, ...others } }
}

/** Whether core accepts the token. */
async function isAccepted(token: string): Promise<boolean> {
  const core = connectCore({ target, token })
  return core.apps
    .listApps({ cursor: '', limit: 1 })
    .then(
      () => true,
      () => false,
    )
    .finally(() => core.close())
}

/** The readiness of the gateway, which calls core for it. */
const callGateway = (): Promise<number> =>
  fetch(`${urls.gateway}/readyz`).then(({ status }) => status)

const callSidecar = (presented: string): Promise<number> =>
  fetch(`${urls.sidecar}/authorize`, {
    method: 'POST',
    headers: { authorization: `Bearer ${presented}` },
    body: '{}',
  }).then(({ status }) => status)

describe('SIGHUP', () => {
  it('replaces the service token of all processes without a refused call', async () => {
    const statuses: number[] = []
    const rotation = { isOver: false }
    const calls = (async () => {
      while (!rotation.isOver) {
        statuses.push(await callGateway())
        await sleep(10)
      }
    })()
    await setTokens('core', tokens.old, tokens.fresh)
    expect(await processes.core.reload()).toContain('"reloaded":["CORE_TOKEN"]')
    for (const name of ['gateway', 'sidecar'] as const) {
      await setTokens(name, tokens.fresh, tokens.old)
      expect(await processes[name].reload()).toContain('"reloaded":["CORE_TOKEN"]')
    }
    await setTokens('core', tokens.fresh)
    await processes.core.reload()
    const before = statuses.length
    while (statuses.length < before + 3) await sleep(10)
    rotation.isOver = true
    await calls
    expect(new Set(statuses)).toEqual(new Set([200]))
    expect([await isAccepted(tokens.old), await isAccepted(tokens.fresh)]).toEqual([false, true])
  }, 60_000)

  it("replaces the signer's secret", async () => {
    expect([await callSidecar(webhook.old), await callSidecar(webhook.fresh)]).toEqual([200, 401])
    await write('webhook', webhook.fresh)
    const line = await processes.sidecar.reload()
    expect(line).toContain('"reloaded":["WEBHOOK_SECRET"]')
    expect(line).not.toContain(webhook.fresh)
    expect([await callSidecar(webhook.old), await callSidecar(webhook.fresh)]).toEqual([401, 200])
  })

  it('logs the names of changed settings that need a restart', async () => {
    await write('core.yaml', 'LOG_LEVEL: info\nLEASE_SECONDS: 31\nLOSS_GRACE_SECONDS: 7\n')
    const line = await processes.core.reload()
    expect(line).toContain('"reloaded":[],"needRestart":["LEASE_SECONDS","LOSS_GRACE_SECONDS"]')
    expect(line).toContain('changed, but need a restart: LEASE_SECONDS, LOSS_GRACE_SECONDS')
    await write('core.yaml', 'LOG_LEVEL: info\n')
    expect(await processes.core.reload()).toContain('none changed')
  })

  it.each([
    ['LOG_LEVEL: loud\n', 'LOG_LEVEL must be one of trace, debug'],
    ['LOG_LEVL: info\n', 'LOG_LEVL is not a setting; did you mean LOG_LEVEL?'],
    ['LOG_LEVEL: [\n', 'is not YAML'],
  ])('keeps all settings with the file %j, and logs one error', async (text, problem) => {
    const good = await readFile(join(folder, 'sidecar.yaml'), 'utf8')
    await write('sidecar.yaml', text)
    await write('webhook', webhook.old)
    const line = await processes.sidecar.reload()
    expect(line).toContain(problem)
    expect(line).toContain('the settings were not reloaded, and the earlier ones stay in use')
    expect(await callSidecar(webhook.fresh)).toBe(200)
    await write('sidecar.yaml', good)
    await write('webhook', webhook.fresh)
    expect(await processes.sidecar.reload()).toContain('none changed')
  })

  it('keeps a secret whose file is missing', async () => {
    await rm(join(folder, tokenFile('gateway')))
    expect(await processes.gateway.reload()).toContain('CORE_TOKEN_FILE: cannot read its file')
    expect(await callGateway()).toBe(200)
    await setTokens('gateway', tokens.fresh, tokens.old)
  })

  it.each(names)('changes the log level of %s, and never ends it', async (name) => {
    await write(`${name}.yaml`, 'LOG_LEVEL: debug\n')
    const pid = processes[name].pid()
    expect(await processes[name].reload()).toContain('"reloaded":["LOG_LEVEL"]')
    for (let signal = 0; signal < 20; signal++) process.kill(pid, 'SIGHUP')
    expect(await processes[name].reload()).toContain('none changed')
    expect(processes[name].pid()).toBe(pid)
  })

  it('reloads the all-in-one service, where it changes the level of each part', async () => {
    const dataDir = join(folder, 'data')
    await write('all.yaml', 'LOG_LEVEL: warn\n')
    const unset = ['PLATFORM_PORT', 'BUILDER_PORT', 'SIDECAR_PORT', 'CORE_PORT', 'ADMIN_PORT']
    const child = spawn(process.execPath, ['deploy/all-in-one/main.ts'], {
      env: {
        ...bareEnv(),
        ...Object.fromEntries(unset.map((name) => [name, '0'])),
        TOLLGATE_CONFIG: join(folder, 'all.yaml'),
        TOLLGATE_DATA_DIR: dataDir,
        RATE_FIXED: '3000',
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const exit = once(child, 'exit')
    await once(child.stdout, 'data')
    const log = (): Promise<string> => readFile(join(dataDir, 'tollgate.log'), 'utf8')
    await write('all.yaml', 'LOG_LEVEL: debug\nPORT_BASE: 20000\n')
    child.kill('SIGHUP')
    await until(async () => (await log()).includes('"needRestart":["PORT_BASE"]'))
    expect(await log()).toContain('"reloaded":["LOG_LEVEL"]')
    const { platformUrl } = JSON.parse(await readFile(join(dataDir, 'quickstart.json'), 'utf8'))
    await fetch(`${platformUrl}/api/v1/oidc/jwks`)
    await until(async () => (await log()).includes('"process":"gateway"'))
    child.kill('SIGTERM')
    expect(await exit).toEqual([0, null])
  }, 60_000)
})
