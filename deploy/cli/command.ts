import { type ParseArgsConfig, parseArgs } from 'node:util'
import { type CoreClient, connectCore } from './client.ts'
import { dataDirOf, findServiceToken, readQuickstart } from '../all-in-one/data-dir.ts'

export interface Command {
  readonly summary: string
  readonly help: string
  /** True for a program that answers --help itself. */
  readonly ownHelp?: boolean
  run(argv: readonly string[]): Promise<number>
}

/** The command was used wrongly; its message says how. */
export class UsageError extends Error {}

/** Parses options strictly: an unknown one is a UsageError that names it. */
export function parse<const T extends NonNullable<ParseArgsConfig['options']>>(
  argv: readonly string[],
  options: T,
) {
  try {
    return parseArgs({ args: [...argv], options, allowPositionals: true, strict: true })
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message.split('. ')[0] : 'bad options')
  }
}

/** Runs `work` with a connection to the running core, found as the help says. */
export async function withCore<T>(work: (core: CoreClient) => Promise<T>): Promise<T> {
  const dataDir = dataDirOf(process.env)
  const token = process.env['CORE_TOKEN'] ?? (await findServiceToken(dataDir))
  if (token === undefined) {
    throw new Error(
      `no service found: start one with npm start, or set CORE_TARGET and CORE_TOKEN (looked in ${dataDir})`,
    )
  }
  const target =
    process.env['CORE_TARGET'] ?? (await readQuickstart(dataDir))?.coreTarget ?? '127.0.0.1:50051'
  const core = connectCore({ target, token })
  try {
    return await work(core)
  } catch (error) {
    if (error instanceof Error && error.message === 'core does not answer') {
      throw new Error(`core does not answer at ${target}; is the service running?`, {
        cause: error,
      })
    }
    throw error
  } finally {
    core.close()
  }
}

/** One JSON document on standard output. */
export const printJson = (value: unknown): void =>
  void process.stdout.write(`${JSON.stringify(value, null, 2)}\n`)

export const printLines = (lines: readonly string[]): void =>
  void process.stdout.write(`${lines.join('\n')}\n`)
