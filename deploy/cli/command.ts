import { type ParseArgsConfig, parseArgs } from 'node:util'
import { type CoreClient, connectCore } from './client.ts'
import { dataDirOf, findServiceToken, readQuickstart } from '../all-in-one/data-dir.ts'
import { setVariables } from '../all-in-one/settings.ts'
import { createEnvReader } from '../../core/lib/env.ts'
import { readCoreAddress } from '../../core/lib/core-link/address.ts'
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
  const stored = await findServiceToken(dataDir)
  const target =
    process.env['CORE_TARGET'] ?? (await readQuickstart(dataDir))?.coreTarget ?? '127.0.0.1:50051'
  const env = createEnvReader({
    CORE_TOKEN: stored,
    CORE_TARGET: target,
    ...setVariables(process.env),
  })
  const address = readCoreAddress(env, 'operator')
  if (address.token === '') {
    throw new Error(
      `no service found: start one with npm start, or set CORE_TARGET and CORE_TOKEN (looked in ${dataDir})`,
    )
  }
  if (env.problems.length > 0) throw new Error(env.problems.join('; '))
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
