import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:https'
import type { ServerResponse } from 'node:http'
import { connect as connectPlain } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ConnectionOptions, connect } from 'node:tls'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createEnvReader } from '../../../core/lib/env.ts'
import { listen } from '../../../core/lib/http.ts'
import { boundConnections } from '../../../core/lib/network/connections.ts'
import { createWebServer, readCertificateFiles } from '../../../core/lib/network/server-tls.ts'
import { startTestService } from '../../support/deployment/service.ts'

const folder = mkdtempSync(join(tmpdir(), 'tollgate-server-tls-'))
const file = (name: string): string => join(folder, name)

/** Makes a certificate of localhost that it signs itself. */
function issue(name: string, days = '2'): void {
  const subject = ['-subj', `/CN=${name}`, '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1']
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
  const out = ['-keyout', `${name}.key`, '-out', `${name}.pem`, '-days', days]
  if (days.startsWith('-')) {
    // Only the command for requests of others accepts a past end.
    execFileSync(
      'openssl',
      ['req', ...key, '-subj', `/CN=${name}`, '-keyout', `${name}.key`, '-out', `${name}.csr`],
      { cwd: folder, stdio: 'pipe' },
    )
    const own = ['-in', `${name}.csr`, '-signkey', `${name}.key`, '-out', `${name}.pem`]
    execFileSync('openssl', ['x509', '-req', '-days', days, ...own], { cwd: folder, stdio: 'pipe' })
    return
  }
  execFileSync('openssl', ['req', '-x509', ...key, ...subject, ...out], {
    cwd: folder,
    stdio: 'pipe',
  })
}

beforeAll(() => {
  for (const name of ['first', 'second']) issue(name)
  issue('expired', '-1')
})
afterAll(() => rmSync(folder, { recursive: true }))

const filesOf = (name: string) => ({ cert: file(`${name}.pem`), key: file(`${name}.key`) })

async function start(certificate: { cert: string; key: string }) {
  const lines: string[] = []
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) })
  const waiting: ServerResponse[] = []
  const server = createWebServer({ server: {}, certificate, log }, (incoming, response) => {
    if (incoming.url === '/wait') waiting.push(response)
    else response.end('ok')
  })
  const listening = await listen(server, { host: '127.0.0.1', port: 0, setting: 'TEST_PORT' })
  onTestFinished(() => listening.stop(100))
  return { ...listening, server, lines, waiting }
}

/** Returns the common name that the listener presents. */
async function nameAt(port: number, options: ConnectionOptions = {}): Promise<unknown> {
  const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false, ...options })
  try {
    await once(socket, 'secureConnect')
    return socket.getPeerCertificate().subject.CN
  } finally {
    socket.destroy()
  }
}

async function get(url: string): Promise<number | undefined> {
  const sent = request(url, { agent: new Agent({ rejectUnauthorized: false }) }).end()
  const [response] = (await once(sent, 'response')) as [{ statusCode?: number; resume(): void }]
  response.resume()
  return response.statusCode
}

describe('an HTTPS listener', () => {
  it('speaks TLS 1.2 and 1.3 only', async () => {
    const { port, url } = await start(filesOf('first'))
    expect(url).toMatch(/^https:/)
    for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const)
      expect(await nameAt(port, { maxVersion })).toBe('first')
    const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'ALL:@SECLEVEL=0' } as const
    await expect(nameAt(port, old)).rejects.toThrow(/version|alert|reset/i)
  })

  it('closes a connection that sends plain HTTP', async () => {
    const { port } = await start(filesOf('first'))
    const socket = connectPlain(port, '127.0.0.1')
    socket.on('error', () => {})
    socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')
    let answer = ''
    socket.on('data', (chunk: Buffer) => {
      answer += chunk.toString('latin1')
    })
    await once(socket, 'close')
    expect(answer).not.toContain('ok')
  })

  it('uses replaced files, and keeps the old ones with one line while the new ones are wrong', async () => {
    const own = filesOf('own')
    const install = (cert: string, key = cert): void => {
      copyFileSync(file(`${cert}.pem`), own.cert)
      copyFileSync(file(`${key}.key`), own.key)
    }
    install('first')
    const { port, lines } = await start(own)
    expect(await nameAt(port)).toBe('first')
    install('second', 'first')
    await expect.poll(() => lines.length, { timeout: 15_000 }).toBe(1)
    expect(lines[0]).toContain('the old one stays in use')
    expect(lines[0]).toContain(`TLS_KEY_FILE: ${own.key} is not the key of the certificate in`)
    expect(await nameAt(port)).toBe('first')
    install('second')
    await expect.poll(() => nameAt(port), { timeout: 15_000 }).toBe('second')
    expect(lines).toHaveLength(2)
  }, 45_000)

  it('counts connections by address, and closes idle ones before busy ones', async () => {
    const { server, url, port, waiting } = await start(filesOf('first'))
    boundConnections(server, { max: 2, maxPerAddress: null })
    const busy = get(`${url}/wait`)
    await expect.poll(() => waiting.length).toBe(1)
    const idle = connect({ port, host: '127.0.0.1', rejectUnauthorized: false })
    idle.on('error', () => {})
    await once(idle, 'secureConnect')
    const closed = new Promise((resolve) => void idle.once('close', resolve))
    expect(await get(url)).toBe(200)
    await closed
    waiting[0]?.end('late')
    expect(await busy).toBe(200)
  })
})

describe('TLS_CERT_FILE and TLS_KEY_FILE', () => {
  it.each([
    [
      'a missing file',
      { cert: file('none.pem'), key: file('first.key') },
      /^TLS_CERT_FILE: cannot use .*none\.pem \(ENOENT/,
    ],
    ['a folder', { cert: folder, key: file('first.key') }, /^TLS_CERT_FILE: cannot use .*\(EISDIR/],
    [
      'a key as certificate',
      { cert: file('first.key'), key: file('first.key') },
      /^TLS_CERT_FILE: cannot use .*first\.key \(it is not PEM of the right kind/,
    ],
    [
      'a certificate as key',
      { cert: file('first.pem'), key: file('first.pem') },
      /^TLS_KEY_FILE: cannot use .*first\.pem \(it is not PEM of the right kind/,
    ],
    [
      'the key of another certificate',
      { cert: file('first.pem'), key: file('second.key') },
      /^TLS_KEY_FILE: .*second\.key is not the key of the certificate in .*first\.pem$/,
    ],
    [
      'an expired certificate',
      { cert: file('expired.pem'), key: file('expired.key') },
      /^TLS_CERT_FILE: the certificate in .*expired\.pem expired at \d{4}-.*; renew it$/,
    ],
  ])('reject %s in one line that names the setting', async (_, files, line) => {
    await expect(start(files)).rejects.toThrow(line)
  })

  it('reject an empty file', async () => {
    writeFileSync(file('empty.pem'), '')
    await expect(start({ cert: file('empty.pem'), key: file('first.key') })).rejects.toThrow(
      /^TLS_CERT_FILE: cannot use/,
    )
  })

  it('may be unreadable for a while: the old ones stay in use', async () => {
    const files = { cert: file('moving.pem'), key: file('moving.key') }
    copyFileSync(file('first.pem'), files.cert)
    copyFileSync(file('first.key'), files.key)
    const { port, lines } = await start(files)
    rmSync(files.cert)
    // A link to itself cannot be read, not even by root.
    symlinkSync(files.cert, files.cert)
    await expect
      .poll(() => lines.join(''), { timeout: 10_000 })
      .toContain('the old one stays in use')
    expect(await nameAt(port)).toBe('first')
  }, 20_000)

  it('do not keep a listener from stopping that somebody has opened without a handshake', async () => {
    const { port, stop } = await start(filesOf('first'))
    const silent = connectPlain(port, '127.0.0.1')
    await once(silent, 'connect')
    // The server has accepted it, too.
    expect(await nameAt(port)).toBe('first')
    const closed = once(silent, 'close')
    await stop(100)
    await closed
  }, 5_000)

  it('must be set together', () => {
    const env = createEnvReader({ TLS_CERT_FILE: file('first.pem') })
    readCertificateFiles(env)
    expect(env.problems).toEqual([
      'TLS_CERT_FILE and TLS_KEY_FILE must be set together; set both or neither',
    ])
  })

  it('turn the listeners of the gateway and the sidecar to HTTPS', async () => {
    const service = await startTestService({
      TLS_CERT_FILE: file('first.pem'),
      TLS_KEY_FILE: file('first.key'),
    })
    onTestFinished(service.stop)
    const { platformUrl, builderUrl, sidecarUrl, issuer } = service.service.quickstart
    expect(issuer).toMatch(/^https:/)
    expect(await get(`${platformUrl}/api/v1/oidc/.well-known/openid-configuration`)).toBe(200)
    expect(await get(`${builderUrl}/health`)).toBe(200)
    expect(await get(`${sidecarUrl}/readyz`)).toBe(200)
  }, 60_000)
})
