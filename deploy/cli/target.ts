import { currentValue } from '../../core/lib/settings/reloadable.ts'
import { createEnvReader } from '../../core/lib/env.ts'
import { readEnvironment } from '../../core/lib/settings/environment.ts'
import { type CoreAddress, readCoreAddress } from '../../core/lib/core-link/address.ts'
import { resolveDataDir, findServiceToken, readQuickstart } from '../local/data-dir.ts'

export interface CoreTarget {
  readonly address: CoreAddress
  readonly dataDir: string
  /**
   * Whether this is the all-in-one service of the data directory, by its address and generated
   * token.
   */
  readonly isOwn: boolean
  /** Whether the command line has --target. */
  readonly isNamed: boolean
}

/**
 * Finds the core of a command: from --target, CORE_TARGET, or the data directory. Rejects without
 * one.
 */
export async function findCore(target: string | undefined): Promise<CoreTarget> {
  const { env: variables } = await readEnvironment(process.env)
  const dataDir = resolveDataDir(variables)
  const stored = await findServiceToken(dataDir)
  const own = (await readQuickstart(dataDir))?.coreTarget
  const env = createEnvReader({
    CORE_TOKEN: stored,
    CORE_TARGET: own,
    ...variables,
    ...(target === undefined ? {} : { CORE_TARGET: target }),
  })
  const address = readCoreAddress(env, 'operator')
  if (currentValue(address.token) === '') {
    throw new Error(
      `no service found: start one with npm start, or set CORE_TARGET and CORE_TOKEN_OPERATOR (looked in ${dataDir})`,
    )
  }
  if (env.problems.length > 0) throw new Error(env.problems.join('; '))
  // Compare the token, too: a tunnel to another deployment may have the same address.
  const isOwn =
    own !== undefined &&
    loopback(address.target) === loopback(own) &&
    currentValue(address.token) === stored
  return { address, dataDir, isOwn, isNamed: target !== undefined }
}

/**
 * Returns the demo app of the data directory. Undefined without one, and when --target or
 * CORE_TARGET may name another deployment.
 */
export async function findDefaultApp(target: string | undefined): Promise<string | undefined> {
  const { env } = await readEnvironment(process.env)
  if (target !== undefined || env['CORE_TARGET'] !== undefined) return undefined
  return (await readQuickstart(resolveDataDir(env)))?.clientId
}

/**
 * Throws unless the command may write to this core: the caller's own quickstart, or one named by
 * --target.
 */
export function requireConsent({ address, dataDir, isOwn, isNamed }: CoreTarget): void {
  if (isOwn || isNamed) return
  throw new Error(
    `this would write to the core at ${address.target}, which is not the quickstart of ${dataDir}; ` +
      `if that is intended, repeat the command with --target ${address.target}`,
  )
}

const loopback = (target: string): string => target.replace(/^(localhost|\[::1\]):/i, '127.0.0.1:')
