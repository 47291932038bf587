import type { EnvReader } from '../../lib/env.ts'
import { withoutPassword } from '../../lib/settings/database-password.ts'
import type { Live, Reloadable } from '../../lib/settings/reloadable.ts'
import type { ReplicaConfig } from './replica.ts'

export interface DatabaseConfig {
  /** A reload replaces only the password in it. */
  readonly url: Reloadable<string>
  /** PostgreSQL itself; another address than `url` if `url` is a connection pooler. */
  readonly directUrl: Reloadable<string>
  readonly poolMax: number
  /** Whether a starting process applies missing migrations; if not, it refuses to start. */
  readonly migrates: boolean
}

const schemes = ['postgres', 'postgresql']

/** Reads an address; empty if it is not set. A reload replaces only its password. */
const readAddress = (env: EnvReader, name: string, meaning: string): Live<string> =>
  env.live(() => env.url(name, { schemes, secret: true, meaning }) ?? '', withoutPassword)

export function readDatabaseConfig(env: EnvReader): DatabaseConfig {
  const url = readAddress(
    env,
    'DATABASE_URL',
    'Address of PostgreSQL 15 or newer, or of a PgBouncer before it; the all-in-one service starts an embedded one when not set.',
  )
  if (url() === '' && !env.problems.some((line) => line.startsWith('DATABASE_URL')))
    env.problem('DATABASE_URL is required')
  const directUrl = readAddress(
    env,
    'DATABASE_DIRECT_URL',
    'Address of PostgreSQL itself, if DATABASE_URL is a PgBouncer in transaction mode; used for migrations and notifications. DATABASE_URL when not set.',
  )
  return {
    url,
    directUrl: directUrl() === '' ? url : directUrl,
    poolMax: env.integer('DATABASE_POOL_MAX', {
      fallback: '16',
      min: 2,
      max: 200,
      meaning: 'Connections that one core process opens.',
    }),
    migrates: readMigrates(env),
  }
}

/** Returns the settings of the replica; null without one. */
export function readReplicaConfig(env: EnvReader): ReplicaConfig | null {
  const url = readAddress(
    env,
    'DATABASE_READ_URL',
    'Address of a streaming replica, without a pooler, that answers queries of usage; DATABASE_URL answers them when not set.',
  )
  const maxLagSeconds = env.integer('DATABASE_READ_MAX_LAG_SECONDS', {
    fallback: '10',
    min: 1,
    max: 3_600,
    meaning:
      'Greatest age in seconds of the data that the replica answers with; DATABASE_URL answers while the replica is older.',
  })
  return url() === '' ? null : { url, maxLagSeconds }
}

const readMigrates = (env: EnvReader): boolean =>
  env.choice('MIGRATE', {
    fallback: 'on',
    choices: ['on', 'off'],
    meaning:
      'Whether a starting process applies missing migrations to the database. With off it refuses to start on an older schema, and `tollgate migrate` applies them.',
  }) === 'on'

/** The settings of a database without a pooler or replica. */
export const onlyDatabase = (config: DatabaseConfig, url: string): DatabaseConfig => ({
  ...config,
  url,
  directUrl: url,
})
