import { Client, escapeIdentifier, escapeLiteral } from 'pg'

const database = 'tollgate'
/** The service's login role. It owns the database and has no rights outside it. */
export const serviceRole = 'tollgate_service'

/**
 * Creates the database and the service's role if they are missing, and transfers objects that
 * earlier versions created as the superuser to that role. Rejects with the server's error while it
 * starts up.
 */
export async function prepareDatabase(superuserUrl: string, password: string): Promise<void> {
  await withClient(superuserUrl, 'postgres', async (client) => {
    const role = await client.query('select 1 from pg_roles where rolname = $1', [serviceRole])
    const verb = role.rowCount === 0 ? 'create' : 'alter'
    await client.query(
      `${verb} role ${serviceRole} login nosuperuser nocreatedb nocreaterole noreplication nobypassrls password ${escapeLiteral(password)}`,
    )
    const existing = await client.query('select 1 from pg_database where datname = $1', [database])
    if (existing.rowCount === 0) await client.query(`create database ${database}`)
    await client.query(`alter database ${database} owner to ${serviceRole}`)
  })
  await withClient(superuserUrl, database, async (client) => {
    await client.query(`alter schema public owner to ${serviceRole}`)
    // The sequence of a column follows its table.
    const { rows } = await client.query<{ kind: string; name: string }>(
      `select 'table' as kind, c.oid::regclass::text as name from pg_class c
       where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm')
         and c.relowner <> $1::regrole
       union all
       select 'sequence', c.oid::regclass::text from pg_class c
       where c.relnamespace = 'public'::regnamespace and c.relkind = 'S' and c.relowner <> $1::regrole
         and not exists (select from pg_depend d where d.objid = c.oid and d.deptype in ('a', 'i'))
       union all
       select 'routine', p.oid::regprocedure::text from pg_proc p
       where p.pronamespace = 'public'::regnamespace and p.proowner <> $1::regrole
       union all
       select 'type', t.oid::regtype::text from pg_type t
       where t.typnamespace = 'public'::regnamespace and t.typtype in ('d', 'e') and t.typowner <> $1::regrole`,
      [serviceRole],
    )
    for (const { kind, name } of rows)
      await client.query(`alter ${kind} ${name} owner to ${escapeIdentifier(serviceRole)}`)
  })
}

async function withClient(
  url: string,
  name: string,
  work: (client: Client) => Promise<void>,
): Promise<void> {
  const client = new Client({
    connectionString: Object.assign(new URL(url), { pathname: `/${name}` }).href,
    connectionTimeoutMillis: 10_000,
  })
  client.on('error', () => {})
  await client.connect()
  try {
    await work(client)
  } finally {
    await client.end()
  }
}
