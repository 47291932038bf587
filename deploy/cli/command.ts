import { type ParseArgsConfig, parseArgs } from 'node:util'
import { didYouMean } from '../../core/lib/names/did-you-mean.ts'
import { type CoreClient, type CoreReader, connectCore } from './client.ts'
import { type CoreTarget, findCore, findDefaultApp, requireConsent } from './target.ts'
import type { Help } from './help.ts'

export interface Command {
  /** Completes the sentence "The command ...", without a full stop. */
  readonly summary: string
  readonly help: Help
  /** Resolves to the exit code. */
  run(argv: readonly string[]): Promise<number>
}

/** Wrong usage of a command, described by the message. */
export class UsageError extends Error {}

/** Options of every command. */
const commonOptions = { target: { type: 'string' }, json: { type: 'boolean' } } as const

/** Parses options strictly: an unknown one is a UsageError that names it. */
export function parse<const T extends NonNullable<ParseArgsConfig['options']>>(
  argv: readonly string[],
  options: T,
) {
  const all: T & typeof commonOptions = { ...options, ...commonOptions }
  try {
    const args = joinNegatives(argv, all)
    return parseArgs({ args, options: all, allowPositionals: true, strict: true })
  } catch (error) {
    const message = error instanceof Error ? (error.message.split('. ')[0] ?? '') : 'bad options'
    const [, unknown] = /^Unknown option '--?([^']*)'/.exec(message) ?? []
    const hint = unknown === undefined ? '' : didYouMean(unknown, Object.keys(all), '--')
    throw new UsageError(`${message}${hint}`)
  }
}

/**
 * Joins a negative number with the option before it, which would otherwise be ambiguous:
 * `--usd-micros -5`.
 */
function joinNegatives(
  argv: readonly string[],
  options: NonNullable<ParseArgsConfig['options']>,
): string[] {
  const args: string[] = []
  for (const [i, arg] of argv.entries()) {
    const [before = '', isOption] = [argv[i - 1], !argv.slice(0, i).includes('--')]
    const takesValue = isOption && options[before.replace(/^--/, '')]?.type === 'string'
    if (takesValue && before.startsWith('--') && /^-\d/.test(arg)) args.push(`${args.pop()}=${arg}`)
    else args.push(arg)
  }
  return args
}

/** Like `parse`, for a command line without positionals. */
export function parseOptions<const T extends NonNullable<ParseArgsConfig['options']>>(
  argv: readonly string[],
  options: T,
) {
  const { values, positionals } = parse(argv, options)
  if (positionals.length > 0) throw new UsageError(`"${positionals[0]}" is not expected here`)
  return values
}

/**
 * Returns the required options; a UsageError names the missing ones. The default of --app is the
 * demo app of the data directory, if the command uses the core of that directory.
 */
export async function need<Name extends string>(
  command: string,
  parsed: Readonly<Partial<Record<Name, unknown>>> & Target,
  names: readonly Name[],
): Promise<Record<Name, string>> {
  const isAppMissing = names.some((name) => name === 'app' && parsed[name] === undefined)
  const defaults = isAppMissing ? { app: await findDefaultApp(parsed.target) } : {}
  const values: Readonly<Partial<Record<Name, unknown>>> = { ...defaults, ...parsed }
  const missing = names.filter((name) => typeof values[name] !== 'string')
  if (missing.length > 0)
    throw new UsageError(`${command} needs ${missing.map((name) => `--${name}`).join(' and ')}`)
  return Object.fromEntries(names.map((name) => [name, values[name]])) as Record<Name, string>
}

/** Resolves to the exit code; undefined means 0. */
type Act = (argv: readonly string[]) => Promise<number | undefined> | Promise<void>

/** Runs the action named by the first word. A UsageError lists the actions for any other word. */
export const runAction =
  (command: string, actions: Readonly<Record<string, Act>>) =>
  async ([word = '', ...rest]: readonly string[]): Promise<number> => {
    const act = Object.hasOwn(actions, word) ? actions[word] : undefined
    if (!act) {
      const names = Object.keys(actions)
      throw new UsageError(`${command} takes ${names.join(', ')}${didYouMean(word, names)}`)
    }
    const code = await act(rest)
    return typeof code === 'number' ? code : 0
  }

/** Parses a page size. */
export function parsePageSize(text: string | undefined): number {
  const limit = Number(text ?? '100')
  if (Number.isInteger(limit) && limit >= 1 && limit <= 1_000) return limit
  throw new UsageError('--limit must be from 1 to 1000')
}

/** The option to select a core other than the one of this folder. */
export interface Target {
  readonly target?: string | undefined
}

/**
 * Runs `work` with a read-only connection to the core of --target, CORE_TARGET, or the data
 * directory.
 */
export async function withCore<T>(
  { target }: Target,
  work: (core: CoreReader) => Promise<T>,
): Promise<T> {
  return connected(await findCore(target), work)
}

/**
 * Like withCore, but may write. Throws if core is neither the caller's own quickstart nor named by
 * --target.
 */
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
