import { type SpawnSyncReturns, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { startService } from '../../../deploy/all-in-one/service.ts'
import { keepLog, registerSecret } from '../../support/run/secrecy.ts'

const program = join(import.meta.dirname, '../../../deploy/tollgate.mjs')
let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-demo-'))
})
afterEach(async () => {
  keepLog(await readFile(join(folder, 'tollgate.log'), 'utf8').catch(() => ''))
  const quickstart = await readFile(join(folder, 'quickstart.json'), 'utf8').catch(() => '')
  for (const [, secret = ''] of quickstart.matchAll(/"\w*(?:Secret|Password)": *"([^"]+)"/g))
    registerSecret(secret)
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 })
})

/** Runs the demo against a service with these settings. */
async function play(
  env: Readonly<Record<string, string>> = {},
): Promise<Pick<SpawnSyncReturns<string>, 'status' | 'stdout' | 'stderr'>> {
  const ports = ['CORE_PORT', 'PLATFORM_PORT', 'BUILDER_PORT', 'SIDECAR_PORT', 'ADMIN_PORT']
  const service = await startService({
    TOLLGATE_DATA_DIR: folder,
    RATE_FIXED: '3000',
    ...Object.fromEntries(ports.map((name) => [name, '0'])),
    ...env,
  })
  try {
    const child = spawn(process.execPath, [program, 'demo', '--pause', '0'], {
      env: { PATH: process.env['PATH'], TOLLGATE_DATA_DIR: folder },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const ended = once(child, 'close')
    const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)])
    const [status] = await ended
    return { status, stdout, stderr }
  } finally {
    await service.stop()
  }
}

describe('tollgate demo', () => {
  it('plays the whole circle, and ends with 0 because everything adds up', async () => {
    const { status, stdout, stderr } = await play()
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    const steps = [
      /Refused +HTTP 483 .*insufficient balance/,
      /Connect +the owner's payment account is connected/,
      /Check out +ada pays \$10\.00 .* moves from Starter to Pro/,
      /Overage /,
      /Refused +HTTP 483 .*ceiling/,
      /Invoice +INV-000002, .* Visa 0341 is declined/,
      /Past due +the subscription is past_due/,
      /New card +Visa 4242 pays INV-000002/,
      /Month end .*: paid:/,
      /Page .*\/invoices\//,
      /Owner +the platform's invoices to the owner: .*, \$5\.00, for the plan: paid/,
      /Refund +\$3\.00 .*: CN-000001/,
      /Webhook +\d+ events arrived with a valid signature, 0 without one/,
      /reconcile: differences +0 +0 +equal/,
      /verify: differences +0 +0 +equal/,
    ]
    const text = stdout.replace(/\n {13}(?=\S)/g, ' ')
    for (const step of steps) expect(text).toMatch(step)
    expect(stdout).not.toContain('DIFFERENT')
    // Only an address may be longer than a line.
    const isLong = (line: string) => line.length > 80 && /\S \S/.test(line.trim().slice(0, 70))
    expect(stdout.split('\n').filter(isLong)).toEqual([])
    expect(stdout).toMatch(/\n {2}Everything adds up\.\n$/)
  }, 180_000)

  it('refuses a service whose payments are not simulated', async () => {
    const { status, stderr } = await play({ PAYMENT_PROCESSOR: 'none' })
    expect(status).toBe(1)
    expect(stderr).toMatch(/^tollgate: .*PAYMENT_PROCESSOR=simulated.*this service has none\n$/)
  }, 120_000)
})
