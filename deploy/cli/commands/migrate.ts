import type { Address } from '../../../core/db/connect.ts'
import { distribute } from '../../../core/db/distribution/distribute.ts'
import type { Placement } from '../../../core/db/distribution/place.ts'
import { listMissing, migrate as applyMissing } from '../../../core/db/migrate.ts'
import type { Env } from '../../../core/lib/env.ts'
import { readEnvironment } from '../../../core/lib/settings/environment.ts'
import { action, createCommand } from '../command.ts'
import { integer, toggle } from '../options.ts'

interface Migrated {
  readonly applied?: readonly string[]
  readonly missing?: readonly string[]
  /** With --distribute: tables that were placed, or would be. */
  readonly placed?: readonly Placement[]
  readonly toPlace?: readonly Placement[]
}

export const migrate = createCommand('migrate', {
  summary: 'applies missing migrations to the database',
  examples: [
    'DATABASE_URL=postgres://… ./tollgate migrate --dry-run',
    'DATABASE_URL=postgres://… ./tollgate migrate --distribute',
  ],
  action: action({
    text:
      'Brings the schema of the database at DATABASE_URL to this release: numbered files, forward only, one ' +
      'transaction each. Running processes of this release and the one before keep working meanwhile. Core ' +
      'and the collector do the same when they start, unless MIGRATE is off: then run this command before a ' +
      'roll-out. Several at once wait for each other. With --dry-run the command only lists what is missing. ' +
      'With --distribute it then distributes the schema over the workers of a Citus cluster, whose coordinator ' +
      'DATABASE_URL names (docs/citus.md): one table after the other, with its rows. Stop every core and ' +
      'collector first. After a crash the same command continues. There is no way back.',
    options: {
      dryRun: toggle(),
      distribute: toggle(),
      shards: integer('N', {
        from: 1,
        to: 1_024,
        fallback: 32,
        meaning: 'With --distribute, the number of shards of each table; 32 by default.',
      }),
    },
    run: async ({ dryRun, distribute: distributes, shards }): Promise<Migrated> => {
      const address = await findDatabase()
      const { url, setting } = address
      if (!distributes)
        return dryRun
          ? { missing: await listMissing(url, setting) }
          : { applied: await applyMissing(url, setting) }
      return dryRun ? rehearse(address, shards) : migrateAndDistribute(address, shards)
    },
    json: (answer) => answer,
    lines: ({ applied, missing, placed, toPlace }) => [
      ...linesOf('applied', applied, 'The schema is up to date.'),
      ...linesOf('is missing', missing, 'The schema is up to date.'),
      ...linesOf('placed', placed?.map(nameOf), 'Every table is distributed.'),
      ...linesOf('to place', toPlace?.map(nameOf), 'Every table is distributed.'),
    ],
  }),
})

/** Tables of missing migrations are not in the list. */
async function rehearse(address: Address, shards: number): Promise<Migrated> {
  const toPlace = await distribute(address, { shards, isDryRun: true })
  return { missing: await listMissing(address.url, address.setting), toPlace }
}

async function migrateAndDistribute(address: Address, shards: number): Promise<Migrated> {
  // Rejects a database without Citus before it migrates anything.
  await distribute(address, { shards, isDryRun: true })
  const applied = await applyMissing(address.url, address.setting)
  return { applied, placed: await distribute(address, { shards }) }
}

/**
 * Returns the address of PostgreSQL itself, with the setting that holds it. Throws when neither is
 * set.
 */
export async function findDatabase(): Promise<Address> {
  const { env } = await readEnvironment(process.env)
  const database = findDatabaseUrl(env)
  if (database) return database
  throw new Error(
    'DATABASE_URL is not set; the all-in-one service keeps its embedded database to itself',
  )
}

/** Like `findDatabase`, in `env`. Returns null when neither is set. */
export function findDatabaseUrl(env: Env): Address | null {
  for (const setting of ['DATABASE_DIRECT_URL', 'DATABASE_URL']) {
    const url = env[setting]?.trim()
    if (url) return { url, setting }
  }
  return null
}

const nameOf = ({ table, kind }: Placement): string => `${table} (${kind})`

/** A line for each name, `empty` without any; nothing if there is no list. */
function linesOf(outcome: string, names: readonly string[] | undefined, empty: string): string[] {
  if (names === undefined) return []
  return names.length === 0 ? [empty] : names.map((name) => `${name}  ${outcome}`)
}
