import { renderHelp } from '../cli/help.ts'
import { parseFlags } from './cli-options.ts'
import type { CliOptions } from './cli-options.ts'
import { playSessions } from './gateway-sessions.ts'
import { signerDoubleHelp } from './help.ts'
import { createSignerDouble } from './signer-double.ts'

const say = (line: string): void => {
  process.stdout.write(`${line}\n`)
}

const complain = (error: unknown): void => {
  const message = error instanceof Error ? error.message : String(error)
  process.stderr.write(`signer-double: ${message.split('\n')[0]}\n`)
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

async function serve(options: CliOptions, signal: AbortSignal): Promise<void> {
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

/**
 * Runs until the driven calls are made, or until SIGINT or SIGTERM. Resolves to the exit code: 0; 2
 * for unusable flags; 1 if the double cannot start. Both errors print one line on standard error.
 */
export async function runSignerDouble(argv: string[]): Promise<number> {
  let options: CliOptions | 'help'
  try {
    options = parseFlags(argv)
  } catch (error) {
    complain(error)
    return 2
  }
  if (options === 'help') {
    say(renderHelp(signerDoubleHelp).trimEnd())
    return 0
  }
  const { signal, dispose } = stopSignal()
  try {
    await serve(options, signal)
    return 0
  } catch (error) {
    complain(error)
    return 1
  } finally {
    dispose()
  }
}

if (import.meta.main) process.exitCode = await runSignerDouble(process.argv.slice(2))
