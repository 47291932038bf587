import { BlockList } from 'node:net'
import type { EnvReader } from '../lib/env.ts'
import {
  type OutboundAllowance,
  isLoopbackHost,
  parseAllowance,
} from '../lib/outbound/addresses.ts'
import { issuerPath } from '../../proto/headers.ts'
import {
  readHost,
  readRevocationBound,
  readPublicUrl,
  readRedisUrl,
  readSecret,
} from '../lib/settings/shared.ts'
import type { Reloadable } from '../lib/settings/reloadable.ts'
import { type DatabaseConfig, readDatabaseConfig, readReplicaConfig } from './database/config.ts'
import type { ReplicaConfig } from './database/replica.ts'
import type { Peppers } from './secrets.ts'

/** Settings of every process that uses the database: core and the collector. */
export interface SharedBaseConfig {
  readonly database: DatabaseConfig
  readonly redisUrl: string | undefined
  /** Seconds for which other caches may honour a permission after it ended. */
  readonly revocationBoundSeconds: number
}

/** Settings that several domains share. */
export interface SharedConfig extends SharedBaseConfig {
  /** Null without a replica. */
  readonly replica: ReplicaConfig | null
  /** Origin under which clients reach the platform API. No trailing slash. */
  readonly publicUrl: string
  readonly issuer: string
  /** Address of the remote signer for apps without their own. */
  readonly defaultSignerUrl: string
  /** Key-encryption keys for values sealed at rest, the current one first. */
  readonly sealingSecrets: Reloadable<readonly string[]>
  readonly peppers: Reloadable<Peppers>
  readonly audit: AuditConfig
  /** Hosts that core may fetch from for tenants although they are not public. */
  readonly outboundAllow: OutboundAllowance
}

export interface AuditConfig {
  readonly retentionDays: number
  /** Folder to which entries are written before they are deleted; null to delete them only. */
  readonly exportDir: string | null
}

export const readSharedConfig = (env: EnvReader): SharedBaseConfig => ({
  database: readDatabaseConfig(env),
  redisUrl: readRedisUrl(env),
  revocationBoundSeconds: readRevocationBound(env),
})

export function readPlatformConfig(env: EnvReader): SharedConfig {
  const publicUrl = readPublicUrl(env)
  return {
    ...readSharedConfig(env),
    replica: readReplicaConfig(env),
    publicUrl,
    issuer: publicUrl + issuerPath,
    defaultSignerUrl: readSignerUrl(env),
    sealingSecrets: env.live(() => readSealingSecrets(env)),
    peppers: env.live(() => readPeppers(env)),
    audit: readAuditConfig(env),
    outboundAllow: readOutboundAllow(env),
  }
}

function readOutboundAllow(env: EnvReader): OutboundAllowance {
  const entries = env.list('OUTBOUND_ALLOW', {
    meaning:
      'Hosts, addresses and ranges that are not public but that core may send requests to if an app names them, such as its identity provider or a webhook endpoint (comma list); for loopback addresses http is allowed, too. The all-in-one service includes the loopback if HOST is a loopback address.',
  })
  // Decision 50: trials on one machine need no certificate. If strangers can reach the process,
  // they must not reach its loopback through it.
  const own = env.isEmbedded && isLoopbackHost(readHost(env)) ? ['127.0.0.0/8', '::1'] : []
  const allowance = parseAllowance([...entries, ...own])
  if (!allowance)
    env.problem('OUTBOUND_ALLOW must be host names, addresses or ranges such as 10.1.0.0/16')
  return allowance ?? { hosts: new Set(), ranges: new BlockList() }
}

const readSignerUrl = (env: EnvReader): string =>
  env.url('SIGNER_DMZ_URL', {
    schemes: ['http', 'https'],
    fallback: 'http://localhost:8935',
    meaning: 'Address of the remote signer for apps without a signer of their own.',
  }) ?? ''

/** Returns the key-encryption keys, the current one first. */
export function readSealingSecrets(env: EnvReader): readonly string[] {
  const current = readSecret(
    env,
    'KEY_ENCRYPTION_KEY',
    'Encrypts signing keys, webhook secrets and stored answers at rest; at least 32 characters.',
  )
  const old = env.list('KEY_ENCRYPTION_KEYS_OLD', {
    secret: true,
    meaning:
      'Earlier values of KEY_ENCRYPTION_KEY, separated by commas, needed until "tollgate keys rewrap" has encrypted everything with the new one.',
  })
  if (old.some((value) => value.length < 32))
    env.problem('KEY_ENCRYPTION_KEYS_OLD must hold values of at least 32 characters')
  return [current, ...old]
}

const readAuditConfig = (env: EnvReader): AuditConfig => ({
  retentionDays: env.integer('AUDIT_RETENTION_DAYS', {
    fallback: '400',
    min: 1,
    max: 36_500,
    meaning: 'Days that entries of the audit log stay in the database.',
  }),
  exportDir:
    env.optional('AUDIT_EXPORT_DIR', {
      meaning:
        'Folder that core appends old entries of the audit log to, as NDJSON, before it deletes them.',
    }) ?? null,
})

export function readPeppers(env: EnvReader): Peppers {
  const meaning =
    'Peppers under which secrets are hashed, as id:value pairs; the first is used for new ones, each at least 32 characters.'
  const entries = env.list('SECRET_PEPPERS', { secret: true, meaning }).map((entry) => {
    const colon = entry.indexOf(':')
    return { id: entry.slice(0, Math.max(colon, 0)), value: entry.slice(colon + 1) }
  })
  if (
    entries.length === 0 ||
    entries.some(({ id, value }) => !/^[A-Za-z0-9_-]{1,32}$/.test(id) || value.length < 32)
  ) {
    env.problem(
      'SECRET_PEPPERS must be id:value pairs, separated by commas, each value at least 32 characters',
    )
  }
  const byId = new Map(entries.map(({ id, value }) => [id, Buffer.from(value)]))
  return { current: entries[0]?.id ?? '', byId }
}
