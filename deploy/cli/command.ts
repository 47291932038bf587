import { type ParseArgsConfig, parseArgs } from 'node:util'
import { didYouMean } from '../../core/lib/names/did-you-mean.ts'
import { type CoreClient, type CoreReader, connectCore } from './client.ts'
import { type CoreTarget, findCore, requireConsent } from './target.ts'
import type { Help } from './help.ts'

export interface Command {
  /** Completes the sentence "The command ...", without a full stop. */
  readonly summary: string
  readonly help: Help
  /** Resolves to the exit code. */
  run(argv: readonly string[]): Promise<number>
}

/** The command was used in a wrong way, which the message names. */
export class UsageError extends Error {}

/** What every command takes. */
const commonOptions = { target: { type: 'string' } } as const

/** Parses options strictly: an unknown one is a UsageError that names it. */
export function parse<const T extends NonNullable<ParseArgsConfig['options']>>(
  argv: readonly string[],
  options: T,
) {
  const all: T & typeof commonOptions = { ...options, ...commonOptions }
  try {
    return parseArgs({ args: [...argv], options: all, allowPositionals: true, strict: true })
  } catch (error) {
    const message = error instanceof Error ? (error.message.split('. ')[0] ?? '') : 'bad options'
    const [, unknown] = /^Unknown option '--?([^']*)'/.exec(message) ?? []
    const hint = unknown === undefined ? '' : didYouMean(unknown, Object.keys(all), '--')
    throw new UsageError(`${message}${hint}`)
  }
}

/** The option of a command that may speak to another core than the one of this folder. */
export interface Target {
  readonly target?: string | undefined
}

/** Runs `work` with a connection to the running core that only reads: of --target, CORE_TARGET, or the data directory. */
export async function withCore<T>(
  { target }: Target,
  work: (core: CoreReader) => Promise<T>,
): Promise<T> {
  return connected(await findCore(target), work)
}

/** Like withCore, and may write: refused where core is neither the caller's own quickstart nor named by --target. */
export async function changeCore<T>(
  { target }: Target,
  work: (core: CoreClient) => Promise<T>,
): Promise<T> {
  const core = await findCore(target)
  requireConsent(core)
  return connected(core, work)
}

async function connected<T>(
  { address }: CoreTarget,
  work: (core: CoreClient) => Promise<T>,
): Promise<T> {
  const core = connectCore(address)
  try {
    return await work(core)
  } catch (error) {
    if (error instanceof Error && error.message.startsWith('core does not answer')) {
      const why = error.message.slice('core does not answer'.length) || '; is the service running?'
      throw new Error(`core does not answer at ${address.target}${why}`, { cause: error })
    }
    throw error
  } finally {
    core.close()
  }
}
