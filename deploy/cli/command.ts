import { type ParseArgsConfig, parseArgs } from 'node:util'
import { type CoreClient, connectCore } from './client.ts'
import { dataDirOf, findServiceToken, readQuickstart } from '../all-in-one/data-dir.ts'
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

/** Runs `work` with a connection to the running core: of CORE_TARGET, or of the data directory. */
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
