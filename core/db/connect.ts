import { Client } from 'pg'
import { toMessage } from '../lib/process.ts'
import { toAddress } from '../lib/settings/shared.ts'

export interface Address {
  readonly url: string
  /** The setting that holds the address, for error messages. */
  readonly setting: string
}

/** Runs `work` with a connection of its own to PostgreSQL itself; throws behind a pooler. */
export async function withClient<T>(
  { url, setting }: Address,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 5_000 })
  await client.connect().catch((error: unknown) => {
    throw new Error(
      `${setting}: cannot use the database at ${toAddress(url)}: ${toMessage(error)}`,
      { cause: error },
    )
  })
  try {
    await refusePooler(client, setting)
    return await work(client)
  } finally {
    await client.end()
  }
}

/**
 * Throws if `client` is connected to a pooler, which gives clients process ids of its own. In its
 * transaction mode a lock of a session stays with a connection that other clients use.
 */
async function refusePooler(client: Client, setting: string): Promise<void> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  if (!('processID' in client) || rows[0]?.pid === client.processID) return
  throw new Error(
    `${setting}: a connection pooler such as PgBouncer answers there; set DATABASE_DIRECT_URL to the address of PostgreSQL itself`,
  )
}

/** Waits until no other process migrates or distributes the database, until the session ends. */
export async function lockSchema(client: Client): Promise<void> {
  await client.query(`select pg_advisory_lock(hashtext('tollgate.migrations'))`)
}
