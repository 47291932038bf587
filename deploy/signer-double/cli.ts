import { UsageError, type Values } from '../cli/options.ts'
import type { signerDoubleOptions } from './cli-options.ts'
import { DIALECTS } from './dialect.ts'
import { directSink } from './events/direct-sink.ts'
import type { Sink } from './events/lossy-queue.ts'
import { fileSink, kafkaSink } from './events/sinks.ts'
import { type GatewaySessionsOptions, playSessions } from './gateway-sessions.ts'
import type { SignerDoubleOptions } from './options.ts'
import { createSignerDouble } from './signer-double.ts'

type Flags = Values<typeof signerDoubleOptions>
type Drive = Omit<GatewaySessionsOptions, 'signal' | 'report'>

const UNTYPED_PIXELS = 1_000_000n

/** Makes the default price buy one second or one call with every type. */
const UNITS: Readonly<Record<string, bigint>> = { lv2v: 27_648_000n, '': UNTYPED_PIXELS }

function typeOf({ type }: Flags, types: readonly string[]): string {
  const chosen = type ?? (types.includes('live') ? 'live' : 'lv2v')
  if (types.includes(chosen)) return chosen
  throw new UsageError(`--type must be one of ${types.filter(Boolean).join(', ')}`)
}

function driveOf(flags: Flags, type: string): Drive | undefined {
  const { drive: sessions, interval, calls, app, authorization } = flags
  if (sessions === undefined && calls !== undefined) throw new UsageError('--calls needs --drive')
  if (sessions === undefined) return undefined
  const intervalMs = interval * 1000
  return { sessions, type, intervalMs, calls, app, authorization, inPixels: UNTYPED_PIXELS }
}

function sinksOf({ kafka, topic, directUrl: url, directSecret: secret, file }: Flags): Sink[] {
  if (url !== undefined && secret === undefined)
    throw new UsageError('--direct-url needs --direct-secret')
  return [
    ...(kafka === undefined ? [] : [kafkaSink(kafka, topic)]),
    ...(url === undefined || secret === undefined
      ? []
      : [directSink({ url, secret, flushMs: 3_000 })]),
    ...(file === undefined ? [] : [fileSink(file)]),
  ]
}

/** Converts the flags to settings. Creates the sinks last, when all else is valid. */
export function toSettings(flags: Flags) {
  const { mode = 'go-livepeer', port, ev, seed, webhookUrl: url } = flags
  const type = typeOf(flags, DIALECTS[mode].types)
  const drive = driveOf(flags, type)
  const double = {
    mode,
    port,
    ...(url !== undefined && { webhook: { url, headers: flags.webhookHeaders ?? [] } }),
    utcOffsetMinutes: flags.utcOffset ?? 0,
    ev,
    orchestrator: {
      pricePerUnit: flags.price,
      pixelsPerUnit: flags.pixelsPerUnit ?? UNITS[type] ?? 1n,
    },
    faults: {
      drop: flags.drop,
      duplicate: flags.duplicate,
      reorder: flags.reorder,
      delayMs: flags.delayMs,
    },
    seed,
    sinks: sinksOf(flags),
  } satisfies SignerDoubleOptions
  return { double, drive }
}

const say = (line: string): void => {
  process.stdout.write(`${line}\n`)
}

/** Aborts the signal on the first SIGINT or SIGTERM; `dispose` removes the handlers. */
function stopSignal(): { signal: AbortSignal; dispose: () => void } {
  const stopping = new AbortController()
  const stop = (): void => stopping.abort()
  process.once('SIGINT', stop)
  process.once('SIGTERM', stop)
  const dispose = (): void => {
    process.off('SIGINT', stop)
    process.off('SIGTERM', stop)
  }
  return { signal: stopping.signal, dispose }
}

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve()
    signal.addEventListener('abort', () => resolve(), { once: true })
  })

async function serve(options: ReturnType<typeof toSettings>, signal: AbortSignal): Promise<void> {
  const double = createSignerDouble(options.double)
  const { url } = await double.start()
  say(`signer double (${options.double.mode}) listens on ${url}`)
  try {
    if (options.drive !== undefined)
      await playSessions(double, { ...options.drive, signal, report: say })
    if (options.drive?.calls === undefined) await aborted(signal)
  } finally {
    await double.stop()
  }
  const { signed, webhookCalls, events } = double.stats()
  say(
    `${signed.tickets} payments signed for ${signed.fee} wei, ${webhookCalls} webhook calls, ` +
      `${events.delivered} of ${events.emitted} events delivered`,
  )
  const missing = events.emitted + events.duplicated - events.dropped - events.delivered
  if (missing > 0)
    say(`${missing} events did not arrive: is the address of the events right, and its secret?`)
}

/** Runs until the driven calls are made, or until SIGINT or SIGTERM. */
export async function runSignerDouble(flags: Flags): Promise<void> {
  const { signal, dispose } = stopSignal()
  await serve(toSettings(flags), signal).finally(dispose)
}
