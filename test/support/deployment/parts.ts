import { randomBytes } from 'node:crypto'
import { type Pool, createPool } from '../../../core/lib/sql.ts'

/** Functions that stop what was started, in the order of the starts. */
export type Stops = (() => Promise<unknown>)[]

/**
 * Returns what `start` started, with a function that stops it in reverse order. Stops everything if
 * `start` fails.
 */
export async function startParts<Parts extends object>(
  start: (stops: Stops) => Promise<Parts>,
): Promise<Parts & { stop(): Promise<void> }> {
  const stops: Stops = []
  const stop = async (): Promise<void> => {
    for (const step of stops.splice(0).toReversed()) await step()
  }
  try {
    return { ...(await start(stops)), stop }
  } catch (error) {
    await stop()
    throw error
  }
}

export const secret = (): string => randomBytes(32).toString('hex')

/** Returns the secrets that all cores of a deployment share. */
export const coreSecrets = () => ({
  KEY_ENCRYPTION_KEY: secret(),
  SECRET_PEPPERS: `p1:${secret()}`,
})

/** Returns the tests' own connections to the database of a deployment. */
export function openPool(stops: Stops, url: string): Pool {
  const pool = createPool({ url, max: 4, name: 'tollgate-test', statementTimeoutMs: 60_000 })
  pool.on('error', () => {})
  stops.push(() => pool.end())
  return pool
}
