import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createEnvReader } from '../../core/lib/env.ts'
import { readSidecarConfig } from '../../sidecar/config.ts'
import { bareEnv } from '../support/deployment/processes.ts'
import { keepLog, secretSettings } from '../support/run/secrecy.ts'
import { startHarness, until } from './support.ts'
import { firstCall } from './signer-bodies.ts'

function start(env: Record<string, string>) {
  secretSettings(env)
  const child = spawn(process.execPath, ['sidecar/main.ts'], {
    env: { ...bareEnv(), ...env },
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const output = { stdout: '', stderr: '' }
  child.stdout.on('data', (chunk: Buffer) => (output.stdout += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (output.stderr += chunk.toString()))
  child.once('close', () => keepLog(output.stdout + output.stderr))
  return { child, output, exit: once(child, 'exit') }
}

describe('readSidecarConfig', () => {
  it('reports all problems at once', () => {
    const env = createEnvReader({
      SIDECAR_PORT: 'x',
      CORE_TOKEN: 'short',
      CORE_TARGET: 'nowhere',
      SIGNING_TTL_SECONDS: '61',
      IDENTITY_AUTH_MODE: 'magic',
      MAX_PRICE_LIVE_WEI: '1.5',
      REDIS_URL: 'http://x',
      WEBHOOK_SECRET: 'x'.repeat(300),
      SIDECAR_ID: 'é'.repeat(101),
    })
    readSidecarConfig(env)
    expect(env.problems).toHaveLength(9)
    for (const [bound, count] of [
      ['141', 0],
      ['140', 1],
    ] as const) {
      const times = { IDENTITY_TTL_SECONDS: '80', SIGNING_TTL_SECONDS: '1' }
      const reader = createEnvReader({ ...times, REVOCATION_BOUND_SECONDS: bound })
      readSidecarConfig(reader)
      const lines = reader.problems.filter((line) => line.startsWith('REVOCATION_BOUND_SECONDS'))
      expect(lines).toHaveLength(count)
    }
    expect(createEnvReader({ IDENTITY_AUTH_MODE: 'trusted_headers' })).toSatisfy(
      (reader: typeof env) => {
        readSidecarConfig(reader)
        return reader.problems.some((line) => line.startsWith('TRUSTED_PROXY_SECRET'))
      },
    )
  })
})

describe('the sidecar alone', () => {
  it('reports each problem in a separate line and exits 1', async () => {
    const { output, exit } = start({ SIDECAR_PORT: 'x', CORE_TOKEN: 'short' })
    expect((await exit)[0]).toBe(1)
    expect(output.stderr).toBe(
      'tollgate: SIDECAR_PORT must be a whole number from 0 to 65535\n' +
        'tollgate: CORE_TOKEN must have at least 32 characters; make one with: openssl rand -base64 32\n',
    )
  })

  it('names the setting of a taken port', async () => {
    const { sidecar } = await startHarness()
    const { output, exit } = start({
      SIDECAR_PORT: String(sidecar.port),
      SIDECAR_ADMIN_PORT: '0',
      CORE_TOKEN: 'x'.repeat(32),
    })
    expect((await exit)[0]).toBe(1)
    expect(output.stderr).toMatch(/^tollgate: port \d+ .* set SIDECAR_PORT to another port\n$/)
  })

  it('starts without core, serves its health, and exits 0 on SIGTERM', async () => {
    const { child, output, exit } = start({
      SIDECAR_PORT: '0',
      SIDECAR_ADMIN_PORT: '0',
      ADMIN_HOST: '127.0.0.2',
      // Avoid core's default port, where another process may listen.
      CORE_TARGET: '127.0.0.1:1',
      CORE_TOKEN: 'x'.repeat(32),
    })
    await until(() => output.stdout.includes('sidecar is up'))
    const line: unknown = JSON.parse(
      output.stdout.split('\n').find((text) => text.includes('sidecar is up')) ?? '',
    )
    const { admin: adminUrl, url } = Object(line)
    expect(adminUrl).toMatch(/^http:\/\/127\.0\.0\.2:/)
    expect((await fetch(`${adminUrl}/healthz`)).status).toBe(200)
    for (const path of ['/', '/health', '/authorize', '/events'])
      expect((await fetch(adminUrl + path, { method: 'POST' })).status).toBe(404)
    expect((await fetch(`${adminUrl}/readyz`)).status).toBe(503)
    expect(await (await fetch(`${adminUrl}/metrics`)).text()).toContain(
      'tollgate_sidecar_decision_duration_seconds_bucket',
    )
    expect((await fetch(`${url}/health`)).status).toBe(200)
    await until(() =>
      output.stdout.includes(
        'CORE_TARGET: no core answers at 127.0.0.1:1; start it, or set its address',
      ),
    )
    child.kill('SIGTERM')
    expect((await exit)[0]).toBe(0)
  })
})

describe('the metrics', () => {
  it('count decisions by code, identity and money, and show the lent money', async () => {
    const { authorize, metrics } = await startHarness()
    const state = { InitialPricePerUnit: 10 ** 12 }
    const usdOn = (page: string, name: string) =>
      Number(
        new RegExp(`^tollgate_sidecar_${name}_usd_total(?:\\{.*\\})? (.+)$`, 'm').exec(page)?.[1],
      )
    await authorize(firstCall({ key: 'sk_live_alice', state }))
    // Ten seconds at 10^12 wei each are 0.03 USD; core lends four calls, and more when half of them
    // are spent.
    expect(usdOn(await metrics.metrics(), 'lent')).toBeCloseTo(0.12, 6)
    for (const key of ['sk_live_alice', 'sk_live_poor']) await authorize(firstCall({ key, state }))
    const page = await metrics.metrics()
    const usd = (name: string) => usdOn(page, name)
    const ok = 'tollgate_sidecar_decisions_total\\{decision="ok"'
    expect(page).toMatch(new RegExp(`${ok},identity="core",money="lease"[^}]*\\} 1`))
    expect(page).toMatch(new RegExp(`${ok},identity="memory",money="lease"[^}]*\\} 1`))
    expect([usd('spent'), usd('refused')]).toEqual([
      expect.closeTo(0.06, 6),
      expect.closeTo(0.03, 6),
    ])
    expect([usd('returned'), usd('offline')]).toEqual([0, 0])
    expect(page).toMatch(/^tollgate_sidecar_core_away(?:\{.*\})? 0$/m)
    expect(page).toMatch(/^tollgate_sidecar_lease_seconds(?:\{.*\})? 2[78]\./m)
    expect(page).toMatch(/^tollgate_sidecar_unreported_calls(?:\{.*\})? \d+$/m)
    expect(page).toMatch(
      /tollgate_sidecar_decisions_total\{decision="insufficient_balance"[^}]*\} 1/,
    )
    expect(page).toMatch(/tollgate_sidecar_decision_duration_seconds_count\{[^}]*\} 3/)
    expect(page).toMatch(/tollgate_sidecar_cache_entries\{cache="identities"[^}]*\} 2/)
  })
})
