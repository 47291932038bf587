import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { onTestFinished } from 'vitest'
import { type Log, silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { DomainError } from '../../../proto/errors.ts'
import { openSpool } from '../../../sidecar/spool/spool.ts'

export { until } from '../../support/waiting.ts'

/** Creates a folder that is removed after the test. */
export async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-spool-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

/**
 * A core double for the spool: accepts envelopes unless it is unavailable, and keeps them in order.
 */
export function createReceiver() {
  const all: string[] = []
  const batches: number[] = []
  const script = { away: false, refuses: (_envelope: string): boolean => false, delayMs: 0 }

  async function deliver(envelopes: readonly Buffer[]): Promise<void> {
    if (script.delayMs > 0) await sleep(script.delayMs, undefined, { ref: false })
    if (script.away) throw new DomainError('UNAVAILABLE', 'core does not answer')
    const texts = envelopes.map(String)
    if (texts.some(script.refuses)) throw new DomainError('REQUEST_INVALID', 'not like this')
    batches.push(texts.length)
    all.push(...texts)
  }

  return { envelopes: all, batches, script, deliver }
}

export type Receiver = ReturnType<typeof createReceiver>

export interface Opening {
  readonly directory: string
  readonly receiver: Receiver
  readonly maxBytes?: number
  readonly log?: Log
}

/** Starts a spool that delivers to a receiver and is stopped after the test at the latest. */
export async function startSpool({
  directory,
  receiver,
  maxBytes = 8 * 1024 * 1024,
  log = silentLog(),
}: Opening) {
  const metrics = createMetrics('sidecar')
  const spool = await openSpool({
    directory,
    maxBytes,
    log,
    metrics,
    now: () => new Date(),
    deliver: receiver.deliver,
    onDelivered: () => {},
    onFailed: () => {},
  })
  let stopping: Promise<void> | null = null
  const stop = (): Promise<void> => (stopping ??= spool.stop())
  onTestFinished(stop)
  const store = (...texts: readonly string[]) => spool.store(texts.map((text) => Buffer.from(text)))

  async function figure(name: string): Promise<number> {
    const values = (await metrics.getSingleMetric(name)?.get())?.values ?? []
    return values[0]?.value ?? NaN
  }

  return { store, stop, figure, isFull: spool.isFull }
}

export const filesOf = async (directory: string, suffix: string): Promise<string[]> =>
  (await readdir(directory))
    .filter((name) => name.endsWith(suffix))
    .toSorted()
    .map((name) => join(directory, name))
