import { once } from 'node:events'
import { type Socket, connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { createEnvReader } from '../../../core/lib/env.ts'
import { readSidecarConfig } from '../../../sidecar/config.ts'
import { createCacheEntries } from '../../../sidecar/cache/signed-entries.ts'
import { firstCall } from '../signer-bodies.ts'
import { post, secret, startHarness } from '../support.ts'

const wrong = { authorization: 'Bearer a-guess-at-the-webhook-secret-0123456' }
const right = { authorization: `Bearer ${secret}` }

describe('wrong webhook secrets', () => {
  it('are limited by address across all routes, and block it for a minute', async () => {
    const { authorize, sidecar, clock, core, metrics } = await startHarness({
      env: { WEBHOOK_GUESSES_PER_MINUTE: '3' },
    })
    expect((await authorize(firstCall(), wrong)).transport).toBe(401)
    expect((await post(`${sidecar.url}/events`, '{}', wrong)).transport).toBe(401)
    expect((await authorize(firstCall(), wrong)).transport).toBe(401)
    const refusal = await authorize(firstCall(), right)
    expect([refusal.transport, refusal.headers['retry-after']]).toEqual([429, '60'])
    expect((await post(`${sidecar.url}/events`, '{}', right)).json['code']).toBe('rate_limited')
    expect(core.calls.verifyApiKey).toBe(0)
    expect(await metrics.metrics()).toMatch(
      /tollgate_sidecar_callers_refused_total\{reason="limited"[^}]*\} 2/,
    )
    clock.seconds += 61
    expect((await authorize(firstCall(), right)).transport).toBe(200)
  })

  it('never lock out an address that sent the right one', async () => {
    const { authorize } = await startHarness({ env: { WEBHOOK_GUESSES_PER_MINUTE: '3' } })
    expect((await authorize(firstCall(), right)).transport).toBe(200)
    for (let i = 0; i < 10; i++) await authorize(firstCall(), wrong)
    expect((await authorize(firstCall(), right)).transport).toBe(200)
  })

  it('never lock out the addresses of SIGNER_ADDRESSES', async () => {
    const { authorize } = await startHarness({
      env: { WEBHOOK_GUESSES_PER_MINUTE: '3', SIGNER_ADDRESSES: '10.0.0.0/8, 127.0.0.1' },
    })
    for (let i = 0; i < 10; i++) await authorize(firstCall(), wrong)
    expect((await authorize(firstCall(), right)).transport).toBe(200)
  })

  it('are not counted when no secret is sent', async () => {
    const { authorize } = await startHarness({ env: { WEBHOOK_GUESSES_PER_MINUTE: '1' } })
    for (let i = 0; i < 3; i++) expect((await authorize(firstCall(), {})).transport).toBe(401)
    expect((await authorize(firstCall(), right)).transport).toBe(200)
  })
})

describe('readSidecarConfig', () => {
  it.each([
    [{ WEBHOOK_SECRET: 'short' }, /^WEBHOOK_SECRET .*at least 32.*openssl rand/],
    [{ CACHE_KEY: 'short' }, /^CACHE_KEY .*at least 32/],
    [
      { SIGNER_ADDRESSES: '10.0.0.0/33' },
      /^SIGNER_ADDRESSES: 10.0.0.0\/33 is neither an address nor a block$/,
    ],
    [
      { SIGNER_ADDRESSES: 'signer.example' },
      /^SIGNER_ADDRESSES: signer.example is neither an address nor a block$/,
    ],
  ])('refuses %o', (env, problem) => {
    const reader = createEnvReader({ CORE_TOKEN: 'x'.repeat(32), ...env })
    readSidecarConfig(reader)
    expect(reader.problems).toEqual([expect.stringMatching(problem)])
  })
})

/** Opens a connection. */
async function opened(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  await once(socket, 'connect')
  return socket
}

describe('a connection', () => {
  const bounds = { headersMs: 400, requestMs: 800 }

  it.each([
    ['headers', 'POST /authorize HTTP/1.1\r\nx-a: ', bounds.headersMs],
    [
      'body',
      `POST /authorize HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${secret}\r\ncontent-length: 100\r\n\r\n{`,
      bounds.requestMs,
    ],
  ])('is closed with 408 when its %s do not arrive', async (_, text, ms) => {
    const { sidecar } = await startHarness({ bounds })
    const begun = performance.now()
    const socket = await opened(sidecar.port)
    let received = ''
    socket.on('data', (bytes) => (received += bytes.toString('latin1')))
    socket.write(text)
    await once(socket, 'close')
    expect(performance.now() - begun).toBeGreaterThan(ms - 50)
    expect(received).toMatch(/^HTTP\/1\.1 408 /)
  })

  it('replaces the oldest idle one when its address has reached the limit', async () => {
    const { sidecar, authorize } = await startHarness({
      env: { SIDECAR_MAX_CONNECTIONS_PER_ADDRESS: '2' },
    })
    const [oldest, newer] = [await opened(sidecar.port), await opened(sidecar.port)]
    const gone = once(oldest, 'close')
    expect((await authorize(firstCall())).transport).toBe(200)
    await gone
    expect(newer.destroyed).toBe(false)
    newer.destroy()
  })

  it('from SIGNER_ADDRESSES is never replaced', async () => {
    const { sidecar, authorize } = await startHarness({
      env: {
        SIDECAR_MAX_CONNECTIONS_PER_ADDRESS: '2',
        SIDECAR_MAX_CONNECTIONS: '3',
        SIGNER_ADDRESSES: '127.0.0.1/32',
      },
    })
    const own = [await opened(sidecar.port), await opened(sidecar.port)]
    expect((await authorize(firstCall())).transport).toBe(200)
    const beyond = await opened(sidecar.port)
    await once(beyond, 'close')
    expect(own.map(({ destroyed }) => destroyed)).toEqual([false, false])
    for (const socket of own) socket.destroy()
  })
})

describe('an entry of the shared cache', () => {
  const entries = createCacheEntries('a-secret-that-all-sidecars-share-0123')

  it('can be opened with its own name and the right key only', () => {
    const entry = entries.sign('one', '{"a":1}')
    expect(entries.open('one', entry)).toBe('{"a":1}')
    expect(entries.open('other', entry)).toBeNull()
    expect(entries.open('one', entry.replace('1}', '2}'))).toBeNull()
    expect(entries.open('one', '{"a":1}')).toBeNull()
    expect(entries.open('one', '')).toBeNull()
    expect(
      createCacheEntries('another-secret-of-other-sidecars-0123').open('one', entry),
    ).toBeNull()
  })
})
