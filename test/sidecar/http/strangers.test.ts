import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { createEnvReader } from '../../../core/lib/env.ts'
import { readSidecarConfig } from '../../../sidecar/config.ts'
import { createCacheEntries } from '../../../sidecar/identity/cache-entries.ts'
import { firstCall } from '../signer-bodies.ts'
import { post, secret, startHarness } from '../support.ts'

const wrong = { authorization: 'Bearer a-guess-at-the-webhook-secret-0123456' }
const right = { authorization: `Bearer ${secret}` }

describe('guesses at the webhook secret', () => {
  it('are limited by address, all routes together, and then no secret is compared for a minute', async () => {
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

  it('of others never lock out an address that sent the right one', async () => {
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

  it('are not counted where no secret is sent', async () => {
    const { authorize } = await startHarness({ env: { WEBHOOK_GUESSES_PER_MINUTE: '1' } })
    for (let i = 0; i < 3; i++) expect((await authorize(firstCall(), {})).transport).toBe(401)
    expect((await authorize(firstCall(), right)).transport).toBe(200)
  })
})

describe('the settings', () => {
  it.each([
    [{ WEBHOOK_SECRET: 'short' }, /^WEBHOOK_SECRET .*at least 32.*openssl rand/],
    [{ CACHE_KEY: 'short' }, /^CACHE_KEY .*at least 32/],
    [{ SIGNER_ADDRESSES: '10.0.0.0/33' }, /^SIGNER_ADDRESSES: 10.0.0.0\/33 is no address/],
    [{ SIGNER_ADDRESSES: 'signer.example' }, /^SIGNER_ADDRESSES: signer.example is no address/],
  ])('refuse %o', (env, problem) => {
    const reader = createEnvReader({ CORE_TOKEN: 'x'.repeat(32), ...env })
    readSidecarConfig(reader)
    expect(reader.problems).toEqual([expect.stringMatching(problem)])
  })
})

/** Resolves when the sidecar closes a connection on which `text` was sent. */
function closed(port: number, text = ''): Promise<void> {
  const socket = connect(port, '127.0.0.1')
  const { promise, resolve } = Promise.withResolvers<void>()
  socket.resume()
  socket.on('close', () => resolve()).on('error', () => {})
  if (text !== '') socket.write(text)
  return promise
}

describe('a connection', () => {
  it('whose headers do not arrive is closed', { timeout: 30_000 }, async () => {
    const { sidecar } = await startHarness()
    const begun = performance.now()
    await closed(sidecar.port, 'POST /authorize HTTP/1.1\r\nx-a: ')
    expect(performance.now() - begun).toBeGreaterThan(9_000)
  })

  it('beyond the bound of its address is closed, but not the signer’s', async () => {
    const bound = { SIDECAR_MAX_CONNECTIONS_PER_ADDRESS: '2' }
    const { sidecar, authorize } = await startHarness({ env: bound })
    const open = [connect(sidecar.port, '127.0.0.1'), connect(sidecar.port, '127.0.0.1')]
    await Promise.all(
      open.map((socket) => new Promise((resolve) => socket.once('connect', resolve))),
    )
    await closed(sidecar.port)
    for (const socket of open) socket.destroy()
    const own = await startHarness({ env: { ...bound, SIGNER_ADDRESSES: '127.0.0.1/32' } })
    const more = [1, 2, 3].map(() => connect(own.sidecar.port, '127.0.0.1'))
    expect((await own.authorize(firstCall())).transport).toBe(200)
    for (const socket of more) socket.destroy()
    expect((await authorize(firstCall())).transport).toBe(200)
  })
})

describe('an entry of the shared cache', () => {
  const entries = createCacheEntries('a-secret-that-all-sidecars-share-0123')

  it('is opened under its own name with the right key only', () => {
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
