import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { connect as connectHttp2 } from 'node:http2'
import { type Socket, connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { bareEnv } from '../../support/deployment/processes.ts'
import { keepLog, registerSecret } from '../../support/run/secrecy.ts'

const root = join(import.meta.dirname, '../../..')
let folder: string
const children = new Set<ChildProcess>()
const sockets = new Set<Socket>()

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-start-'))
})
afterEach(async () => {
  for (const socket of sockets) socket.destroy()
  sockets.clear()
  await Promise.all(
    [...children].map(async (child) => {
      if (child.exitCode !== null || child.signalCode !== null) return
      const gone = once(child, 'exit')
      child.kill('SIGKILL')
      await gone
    }),
  )
  children.clear()
  await addLogsToSearch()
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 })
})

/** Adds the service's log and its generated secrets to the search for leaks. */
async function addLogsToSearch(): Promise<void> {
  const read = (file: string) => readFile(join(folder, 'data', file), 'utf8').catch(() => '')
  keepLog(await read('tollgate.log'))
  for (const [, secret = ''] of (await read('quickstart.json')).matchAll(
    /"\w*(?:Secret|Password)": *"([^"]+)"/g,
  ))
    registerSecret(secret)
}

const ports = {
  CORE_PORT: '0',
  PLATFORM_PORT: '0',
  BUILDER_PORT: '0',
  SIDECAR_PORT: '0',
  ADMIN_PORT: '0',
}

/** Runs `npm start` like an operator, with an otherwise empty environment. */
function start(env: Readonly<Record<string, string>>, program = 'deploy/all-in-one/main.ts') {
  const child = spawn(process.execPath, [program], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...bareEnv(),
      TOLLGATE_DATA_DIR: join(folder, 'data'),
      RATE_FIXED: '3000',
      ...ports,
      ...env,
    },
  })
  children.add(child)
  let stderr = ''
  child.stderr.on('data', (chunk) => {
    stderr += String(chunk)
  })
  let stdout = ''
  child.stdout.on('data', (chunk) => {
    stdout += String(chunk)
  })
  return { child, ended: once(child, 'close').then(([code]) => ({ code, stderr, stdout })) }
}

describe('a failed start', () => {
  it('prints each wrong setting in one line, and creates nothing', async () => {
    const settings = { DATABASE_URL: 'nonsense', RATE_FIXED: 'abc', LOG_LEVEL: 'verbose' }
    const problems = [
      'DATABASE_URL must be a URL that starts with postgres:// or postgresql://',
      'LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, silent',
      'RATE_FIXED must',
    ]
    const { code, stderr } = await start(settings).ended
    expect(code).toBe(1)
    expect(stderr).toMatch(/\n$/)
    expect(stderr.trimEnd().split('\n').toSorted()).toEqual(
      problems.map((problem) => expect.stringContaining(`tollgate: ${problem}`)),
    )
    expect(existsSync(join(folder, 'data'))).toBe(false)
  })

  it.each([
    [
      { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' },
      /^tollgate: .*ECONNREFUSED 127\.0\.0\.1:1\n$/,
    ],
    [
      { TOLLGATE_DATA_DIR: '/proc/nope/deeper' },
      /^tollgate: cannot write to \/proc\/nope\/deeper \(ENOENT\); set TOLLGATE_DATA_DIR .*\n$/,
    ],
    [
      { TOLLGATE_DATA_DIR: '/dev/null/below' },
      /^tollgate: cannot write to \/dev\/null\/below \(ENOTDIR\); .*\n$/,
    ],
  ])('prints one line when it cannot run with %j', async (env, line) => {
    const { code, stderr } = await start(env).ended
    expect(stderr).toMatch(line)
    expect(code).toBe(1)
  })

  it.each(['core', 'gateway', 'sidecar'])(
    'reports an invalid log level, even if %s runs in a separate process',
    async (name) => {
      const { code, stderr } = await start({ LOG_LEVEL: 'verbose' }, `${name}/main.ts`).ended
      expect(code).toBe(1)
      expect(stderr).toContain('tollgate: LOG_LEVEL must be one of trace, ')
      expect(stderr).toMatch(/^(tollgate: .*\n)+$/)
    },
  )
})

describe('Ctrl-C', () => {
  type Addresses = Record<
    'platformUrl' | 'builderUrl' | 'edgeUrl' | 'sidecarUrl' | 'adminUrl' | 'coreTarget',
    string
  >

  async function addresses(ended: Promise<{ code: number; stderr: string }>): Promise<Addresses> {
    const file = join(folder, 'data', 'quickstart.json')
    let end = ''
    void ended.then(({ code, stderr }) => {
      end = `ended with ${code}: ${stderr}`
    })
    await expect.poll(() => existsSync(file) || end, { timeout: 25_000, interval: 50 }).toBe(true)
    return JSON.parse(await readFile(file, 'utf8'))
  }

  async function half(url: string, request: string): Promise<void> {
    const { hostname, port } = new URL(url)
    const socket = connect(Number(port), hostname)
    sockets.add(socket)
    socket.on('error', () => {})
    await once(socket, 'connect')
    socket.write(request)
  }

  const halfPost = (path: string): string =>
    `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"a":`

  it('exits with 0 within about four seconds while uploads and gRPC calls stall on every port', async () => {
    const { child, ended } = start({ EDGE_PORT: '0' })
    const at = await addresses(ended)
    const resource = await fetch(`${at.edgeUrl}/.well-known/oauth-protected-resource`)
    // The metadata has the URL that is shown to users.
    expect(await resource.json()).toMatchObject({ resource: at.edgeUrl })
    await half(at.platformUrl, halfPost('/api/v1/apps/x/users'))
    await half(at.builderUrl, halfPost('/health'))
    await half(at.edgeUrl, halfPost('/api/v1/oidc/register'))
    await half(at.sidecarUrl, halfPost('/events'))
    await half(at.sidecarUrl, halfPost('/authorize'))
    await half(at.adminUrl, 'GET /metrics HTTP/1.1\r\n')
    await half(`http://${at.coreTarget}`, 'PRI * HTTP/2.0\r\n')
    const session = connectHttp2(`http://${at.coreTarget}`)
    session.on('error', () => {})
    const call = session.request({
      ':method': 'POST',
      ':path': '/tollgate.signer.v1.SignerService/GetAccess',
      'content-type': 'application/grpc',
      te: 'trailers',
    })
    call.on('error', () => {})
    call.write(Buffer.from([0, 0, 0, 1, 0, 1]))
    await new Promise((done) => setTimeout(done, 300))
    const startedAt = performance.now()
    child.kill('SIGINT')
    const welcome = expect.stringContaining(`Its edge             ${at.edgeUrl}\n`)
    expect(await ended).toEqual({ code: 0, stderr: '', stdout: welcome })
    expect(performance.now() - startedAt).toBeLessThan(4_500)
    session.destroy()
  }, 60_000)
})
