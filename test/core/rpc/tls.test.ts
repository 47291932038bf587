import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { type Socket, connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { startCore } from '../../../core/app.ts'
import { createEnvReader } from '../../../core/lib/env.ts'
import type { ServiceRole } from '../../../core/lib/core-link/address.ts'
import { startCoreCheck } from '../../../core/lib/core-link/check.ts'
import { readClientTls } from '../../../core/lib/core-link/tls.ts'
import type { Log } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { connectCore as connectCommand } from '../../../deploy/cli/client.ts'
import { connectCore as connectGateway } from '../../../gateway/core/client.ts'
import { createCoreClient } from '../../../sidecar/core/client.ts'
import { createDatabase } from '../../support/run/postgres.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { configOf, serviceToken, until } from '../support.ts'

const folder = mkdtempSync(join(tmpdir(), 'tollgate-tls-'))
const file = (name: string): string => join(folder, name)
const openssl = (...args: string[]): unknown =>
  execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' })
const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']

function makeAuthority(name: string): void {
  openssl(
    'req',
    '-x509',
    ...key,
    '-days',
    '2',
    '-subj',
    `/CN=${name}`,
    '-keyout',
    `${name}.key`,
    '-out',
    `${name}.pem`,
  )
}

function issue(name: string, { by = 'ca', days = '2' } = {}): void {
  openssl('req', ...key, '-subj', `/CN=${name}`, '-keyout', `${name}.key`, '-out', `${name}.csr`)
  writeFileSync(file('names.ext'), 'subjectAltName=DNS:localhost,IP:127.0.0.1\n')
  const signature = ['-CA', `${by}.pem`, '-CAkey', `${by}.key`, '-CAcreateserial', '-days', days]
  openssl(
    'x509',
    '-req',
    '-in',
    `${name}.csr`,
    ...signature,
    '-extfile',
    'names.ext',
    '-out',
    `${name}.pem`,
  )
}

let database: Awaited<ReturnType<typeof createDatabase>>
beforeAll(async () => {
  database = await createDatabase()
  makeAuthority('ca')
  makeAuthority('stranger')
  issue('core')
  issue('caller')
  issue('foreign', { by: 'stranger' })
  // Expired yesterday: OpenSSL accepts negative days.
  issue('expired', { days: '-1' })
})
afterAll(async () => {
  await database.drop()
  rmSync(folder, { recursive: true })
})

const filesOf = (name: string) => ({
  CORE_TLS_CERT: file(`${name}.pem`),
  CORE_TLS_KEY: file(`${name}.key`),
})
const authority = { CORE_TLS_CA: file('ca.pem') }

async function startSecure(env: Readonly<Record<string, string>> = {}) {
  const lines: string[] = []
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) })
  const config = configOf({ DATABASE_URL: database.url, ...filesOf('core'), ...authority, ...env })
  const core = await startCore(config, { log, metrics: createMetrics('core') })
  onTestFinished(core.stop)
  return { target: core.target, lines }
}

const tlsOf = (env: Readonly<Record<string, string>>) => readClientTls(createEnvReader(env))

/** The results of a call by an operator's command and of one by the gateway. */
async function callsFrom(target: string, env: Readonly<Record<string, string>>) {
  const address = { target, token: serviceToken, tls: tlsOf(env) }
  const command = connectCommand(address)
  const gateway = connectGateway(
    { ...address, deadlineMs: 5_000 },
    'https://svc.example/api/v1/oidc',
  )
  const end = (error: unknown): string => (error instanceof Error ? error.message : String(error))
  const [ofCommand, ofGateway] = await Promise.all([
    command.tokens.listSigningKeys({}).then(() => 'OK', end),
    gateway
      .callsFor({ correlationId: 'c' })
      .tokens.getJwks({})
      .then(() => 'OK', end),
  ])
  command.close()
  gateway.close()
  return { command: ofCommand, gateway: ofGateway }
}

describe('TLS between processes', () => {
  it('serves callers that trust the authority, without a client certificate by default', async () => {
    const { target } = await startSecure()
    expect(await callsFrom(target, authority)).toEqual({ command: 'OK', gateway: 'OK' })
  })

  it('leaves room for callers when strangers start no handshake or send nothing after it', async () => {
    const { target } = await startSecure()
    const [host = '', port] = target.split(':')
    const ca = readFileSync(file('ca.pem'))
    const strangers: Socket[] = []
    onTestFinished(() => strangers.forEach((socket) => void socket.destroy()))
    for (let i = 0; i < 60; i++) {
      const plain = connect(Number(port), host)
      const secure = connectTls({ host, port: Number(port), ca, ALPNProtocols: ['h2'] })
      for (const socket of [plain, secure]) socket.on('error', () => {}).resume()
      strangers.push(plain, secure)
      await Promise.all([once(plain, 'connect'), once(secure, 'secureConnect')])
    }
    expect(await callsFrom(target, authority)).toEqual({ command: 'OK', gateway: 'OK' })
    await expect
      .poll(() => strangers.filter(({ closed }) => !closed).length)
      .toBeLessThanOrEqual(100)
  })

  it('rejects a caller that trusts another authority, with a clear error there', async () => {
    const { target } = await startSecure()
    const ends = await callsFrom(target, { CORE_TLS_CA: file('stranger.pem') })
    expect(ends.command).toContain('not from an authority in CORE_TLS_CA')
    expect(ends.gateway).not.toBe('OK')
  })

  it('rejects plain text, and logs it', async () => {
    const { target, lines } = await startSecure()
    const ends = await callsFrom(target, {})
    expect(Object.values(ends)).not.toContain('OK')
    await until(() => lines.some((line) => line.includes('only one side uses TLS')))
  })

  it('rejects TLS calls to a core that uses plain text', async () => {
    const config = configOf({ DATABASE_URL: database.url })
    const core = await startCore(config, {
      log: pino({ level: 'silent' }),
      metrics: createMetrics('core'),
    })
    onTestFinished(core.stop)
    const ends = await callsFrom(core.target, authority)
    expect(Object.values(ends)).not.toContain('OK')
  })

  it('reads replaced certificates again without a restart', { timeout: 40_000 }, async () => {
    issue('replaced', { by: 'stranger' })
    const { target } = await startSecure(filesOf('replaced'))
    expect((await callsFrom(target, authority)).command).not.toBe('OK')
    issue('next')
    copyFileSync(file('next.key'), file('replaced.key'))
    copyFileSync(file('next.pem'), file('replaced.pem'))
    await expect
      .poll(async () => (await callsFrom(target, authority)).command, {
        timeout: 30_000,
        interval: 500,
      })
      .toBe('OK')
  })
})

describe('client certificates', () => {
  const required = { CORE_TLS_CLIENT_AUTH: 'require' }

  it('of the authority are accepted', async () => {
    const { target } = await startSecure(required)
    const ends = await callsFrom(target, { ...authority, ...filesOf('caller') })
    expect(ends).toEqual({ command: 'OK', gateway: 'OK' })
  })

  it.each([
    ['none', {}, /demands a client certificate|DID_NOT_RETURN/],
    ['one of another authority', filesOf('foreign'), /not from an authority in CORE_TLS_CA/],
  ])('are required: %s is rejected with a reason in the log', async (_name, files, reason) => {
    const { target, lines } = await startSecure(required)
    const ends = await callsFrom(target, { ...authority, ...files })
    expect(Object.values(ends)).not.toContain('OK')
    await until(() => lines.some((line) => reason.test(line)))
  })

  it('that have expired are rejected with a reason in the log', async () => {
    const { target, lines } = await startSecure(required)
    const [host = '', port] = target.split(':')
    const [cert, secret] = [readFileSync(file('expired.pem')), readFileSync(file('expired.key'))]
    const socket = connectTls({
      host,
      port: Number(port),
      cert,
      key: secret,
      ca: readFileSync(file('ca.pem')),
      ALPNProtocols: ['h2'],
    })
    socket.on('error', () => {})
    await expect.poll(() => lines.join('')).toMatch(/has expired/)
    socket.destroy()
  })
})

describe('certificates at the start', () => {
  const foreignKey = { CORE_TLS_CERT: file('core.pem'), CORE_TLS_KEY: file('caller.key') }
  const cases: readonly (readonly [string, Readonly<Record<string, string>>, RegExp])[] = [
    [
      'an expired one',
      filesOf('expired'),
      /^CORE_TLS_CERT: .*expired\.pem expired at .*; renew it$/,
    ],
    [
      'one of another key',
      foreignKey,
      /^CORE_TLS_KEY: .*caller\.key is not the key of .*core\.pem$/,
    ],
    [
      'a key as an authority',
      { CORE_TLS_CA: file('ca.key') },
      /^CORE_TLS_CA: cannot use .*ca\.key/,
    ],
  ]

  it.each(cases)('of core, %s, stop it with one line', async (_name, files, line) => {
    await expect(startSecure(files)).rejects.toThrow(line)
  })

  it.each(cases)('of a caller, %s, stop it with one line', (_name, files, line) => {
    const tls = tlsOf({ ...authority, ...files })
    expect(() => createCoreClient({ target: 'localhost:1', token: serviceToken, tls })).toThrow(
      line,
    )
  })
})

describe('startCoreCheck', () => {
  /** Returns the first line that the check logs. */
  async function firstLine(call: () => Promise<Date | null>, role: ServiceRole = 'sidecar') {
    const { promise, resolve } = Promise.withResolvers<string>()
    const log = { info: resolve, warn: resolve, error: resolve } as unknown as Log
    onTestFinished(startCoreCheck({ target: 'core:1', role, call, log }))
    return promise
  }

  function callers(
    target: string,
    env: Readonly<Record<string, string>>,
    token: string = serviceToken,
  ) {
    const address = { target, token, tls: tlsOf(env) }
    const sidecar = createCoreClient(address)
    const gateway = connectGateway({ ...address, deadlineMs: 5_000 }, 'https://svc.example')
    onTestFinished(() => {
      sidecar.stop()
      gateway.close()
    })
    const readTime = async () => {
      const { now } = await gateway.callsFor({ correlationId: 'c' }).readiness.getReadiness({})
      return new Date(now)
    }
    return { sidecar: sidecar.readTime, gateway: readTime }
  }

  it('reports a token that core does not accept', async () => {
    const { target } = await startSecure()
    const wrong = callers(
      target,
      authority,
      registerSecret('another-token-of-another-deployment-012'),
    )
    for (const role of ['sidecar', 'gateway'] as const)
      expect(await firstLine(wrong[role], role)).toMatch(
        new RegExp(
          `^CORE_TOKEN_${role.toUpperCase()} \\(or CORE_TOKEN\\): core at core:1 does not accept it`,
        ),
      )
  })

  it('reports a certificate of an unknown authority, and a core that uses no TLS', async () => {
    const { target } = await startSecure()
    const stranger = callers(target, { CORE_TLS_CA: file('stranger.pem') })
    for (const role of ['sidecar', 'gateway'] as const)
      expect(await firstLine(stranger[role], role)).toBe(
        'CORE_TARGET: cannot call core at core:1: the certificate is not from an authority in CORE_TLS_CA',
      )
  })

  it('reports a core that does not answer', async () => {
    const nowhere = callers('127.0.0.1:9', {})
    for (const role of ['sidecar', 'gateway'] as const)
      expect(await firstLine(nowhere[role], role)).toBe(
        'CORE_TARGET: no core answers at core:1; start it, or set its address',
      )
  })

  it("reports a clock that differs by minutes from the database's", async () => {
    const { target } = await startSecure()
    const { sidecar, gateway } = callers(target, authority)
    for (const call of [sidecar, gateway]) {
      const at = await call()
      expect(Math.abs((at?.getTime() ?? 0) - Date.now())).toBeLessThan(10_000)
    }
    const at = (ms: number) => async () => new Date(Date.now() + ms)
    expect(await firstLine(at(-300_000))).toBe(
      "the clock of this machine is 300 s ahead of the database's: synchronise both by NTP",
    )
    expect(await firstLine(at(180_000))).toContain('180 s behind')
  })

  it("is also made by core with the database's clock", async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 300_000 })
    onTestFinished(() => void vi.useRealTimers())
    const { lines } = await startSecure({ CORE_TLS_CERT: '', CORE_TLS_KEY: '', CORE_TLS_CA: '' })
    expect(lines.join('')).toMatch(/the clock of this machine is (299|300|301) s ahead/)
  })
})

describe('a sidecar', () => {
  /**
   * Returns a function that makes a sidecar's call, and the log lines. A rejected connection is
   * replaced by a new one.
   */
  async function sidecarTo(target: string, env: Readonly<Record<string, string>>) {
    const lines: string[] = []
    const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) })
    const client = createCoreClient({ target, token: serviceToken, tls: tlsOf(env) }, log)
    onTestFinished(client.stop)
    const call = (): Promise<string> =>
      client.listSignerSecrets().then(
        () => 'OK',
        () => 'refused',
      )
    return { call, lines }
  }

  it('reads replaced certificates and authorities again', { timeout: 60_000 }, async () => {
    issue('turned', { by: 'stranger' })
    copyFileSync(file('stranger.pem'), file('trusted.pem'))
    const { target } = await startSecure({ CORE_TLS_CLIENT_AUTH: 'require' })
    const trusted = { CORE_TLS_CA: file('trusted.pem') }
    const { call, lines } = await sidecarTo(target, { ...trusted, ...filesOf('turned') })
    expect(await call()).toBe('refused')
    // A key alone, without its certificate, is logged and changes nothing.
    issue('turn')
    copyFileSync(file('turn.key'), file('turned.key'))
    await expect.poll(() => lines.join(''), { timeout: 20_000 }).toContain('cannot be used')
    expect(await call()).toBe('refused')
    copyFileSync(file('turn.pem'), file('turned.pem'))
    copyFileSync(file('ca.pem'), file('trusted.pem'))
    await expect.poll(call, { timeout: 30_000, interval: 500 }).toBe('OK')
    expect(lines.join('')).toContain('were read again')
  })
})

describe('the settings', () => {
  it('that do not fit each other are problems', () => {
    const problemsOf = (env: Readonly<Record<string, string>>) => {
      const reader = createEnvReader(env)
      readClientTls(reader)
      return reader.problems
    }
    expect(problemsOf({ CORE_TLS_CERT: 'a', CORE_TLS_CA: 'c' })).toEqual([
      expect.stringContaining('must be set together'),
    ])
    expect(problemsOf({ CORE_TLS_CERT: 'a', CORE_TLS_KEY: 'b' })).toEqual([
      expect.stringContaining('needs CORE_TLS_CA'),
    ])
    expect(() => configOf({ CORE_TLS_CLIENT_AUTH: 'require' })).toThrow(/needs CORE_TLS_CA/)
  })

  it('name a file that cannot be read', async () => {
    await expect(startSecure({ CORE_TLS_CERT: file('nowhere.pem') })).rejects.toThrow(
      /CORE_TLS_CERT: cannot use .*nowhere\.pem \(ENOENT/,
    )
  })
})
