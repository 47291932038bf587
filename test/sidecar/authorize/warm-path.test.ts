import { Session } from 'node:inspector/promises'
import { join, relative } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { createLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { startSidecar } from '../../../sidecar/server.ts'
import { startCoreDouble } from '../../fakes/sidecar-core.ts'
import { firstCall } from '../signer-bodies.ts'
import { configOf, post, secret } from '../support.ts'

const root = join(import.meta.dirname, '../../..')
const calls = 5
const idleMs = 2_000

/** The files that a warm call crosses. A reader of the decision needs no others. */
const warmPath = [
  'core/lib/crypto.ts',
  'core/lib/json.ts',
  'core/lib/network/connections.ts',
  'core/lib/settings/reloadable.ts',
  'core/lib/telemetry/tracing.ts',
  'sidecar/authorize/answer.ts',
  'sidecar/authorize/decision.ts',
  'sidecar/authorize/webhook.ts',
  'sidecar/cache/cached-state.ts',
  'sidecar/callers/callers.ts',
  'sidecar/decision/request.ts',
  'sidecar/explain/explanations.ts',
  'sidecar/http/body.ts',
  'sidecar/http/router.ts',
  'sidecar/identity/identities.ts',
  'sidecar/metrics.ts',
  'sidecar/signer-state/session.ts',
  'sidecar/wallets/accounts.ts',
  'sidecar/wallets/bounds.ts',
  'sidecar/wallets/open-leases.ts',
  'sidecar/wallets/payments.ts',
  'sidecar/wallets/report-queue.ts',
  'sidecar/wallets/reports.ts',
  'sidecar/wallets/session-calls.ts',
]

it('decides a warm call in 24 files', async () => {
  const authorize = await startWithKey()
  const before = 20
  for (let sequence = 0; sequence < before; sequence++) await authorize(sequence)
  const profiler = await startProfiler()
  // Renewals, reports and heartbeats run beside the calls.
  await sleep(idleMs)
  const loops = await profiler.takeFunctions()
  let common: Set<string> | null = null
  for (let sequence = before; sequence < before + calls; sequence++) {
    await authorize(sequence)
    const ran = await profiler.takeFunctions()
    common = new Set([...ran].filter((name) => !loops.has(name) && (!common || common.has(name))))
  }
  const files = new Set([...(common ?? [])].map((name) => name.split(' ')[0] ?? ''))
  expect([...files].toSorted()).toEqual(warmPath)
})

async function startWithKey() {
  const core = await startCoreDouble()
  onTestFinished(core.stop)
  core.keys.set('sk_live_alice', { clientId: 'acme', externalUserId: 'alice', keyId: 'key-alice' })
  core.users.set('acme:alice', { micros: 5_000_000n })
  const sidecar = await startSidecar(configOf({ CORE_TARGET: core.target }), {
    log: createLog({ level: 'info', name: 'sidecar', file: '/dev/null' }),
    metrics: createMetrics('sidecar'),
    keyShape: { looksLikeKey: () => true, isWellFormed: () => true },
  })
  onTestFinished(sidecar.stop)
  return async (sequence: number): Promise<void> => {
    const state = { SequenceNumber: sequence, LastUpdate: timeOf(sequence) }
    const body = JSON.stringify(firstCall({ key: 'sk_live_alice', state }))
    const { json } = await post(`${sidecar.url}/authorize`, body, {
      authorization: `Bearer ${secret}`,
    })
    expect(json['status']).toBe(200)
  }
}

const timeOf = (sequence: number): string =>
  `${new Date(Date.UTC(2026, 8, 14, 10, 15) + sequence * 1000).toISOString().slice(0, 19)}Z`

async function startProfiler() {
  const session = new Session()
  session.connect()
  onTestFinished(() => session.disconnect())
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })

  /** Returns the product's functions that ran since the last call: file, name and offset. */
  async function takeFunctions(): Promise<Set<string>> {
    const { result } = await session.post('Profiler.takePreciseCoverage')
    const ran = result.flatMap(({ url, functions }) =>
      functions.flatMap(({ functionName, ranges: [range] }) =>
        range && range.count > 0 ? [`${pathOf(url)} ${functionName} ${range.startOffset}`] : [],
      ),
    )
    return new Set(ran.filter(isProduct))
  }

  return { takeFunctions }
}

const pathOf = (url: string): string =>
  relative(root, url.startsWith('file:') ? fileURLToPath(url) : url)

const isProduct = (path: string): boolean => /^(core|sidecar|proto)\//.test(path)
