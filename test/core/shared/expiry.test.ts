import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createGrants } from '../../../core/shared/lineage/grants.ts'
import { createIdempotency } from '../../../core/shared/idempotency.ts'
import { createInvalidations } from '../../../core/shared/invalidations.ts'
import { createSealing } from '../../../core/shared/sealing/sealing.ts'
import { deletions } from '../../../core/identity/accounts/store.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createDecisions } from '../../../core/signer/decisions/service.ts'
import { deleteInBatches } from '../../../core/shared/upkeep.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type TestCore, begin, day, startTestCore } from '../support.ts'

let core: TestCore
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())

const now = () => begin
const many = 50_000

async function count(table: string): Promise<number> {
  const { rows } = await core.sql.query<{ n: number }>(`select count(*)::int as n from ${table}`)
  return rows[0]?.n ?? -1
}

/**
 * The platform's tables with expiring rows: a statement that inserts fifty thousand expired rows
 * and a living one, and the function that deletes expired rows.
 */
const tables: readonly {
  table: string
  fill: string
  empty: () => Promise<unknown>
}[] = [
  {
    table: 'grant_ends',
    fill: `insert into grant_ends (id, expires_at) select 'g' || n, $2::timestamptz from generate_series(1, $1::int) as n`,
    empty: () => {
      const invalidations = createInvalidations({
        redis: null,
        tombstoneSeconds: 1,
        log: silentLog(),
      })
      return createGrants({ pool: core.sql, invalidations, now }).deleteExpired()
    },
  },
  {
    table: 'idempotency_keys',
    fill: `insert into idempotency_keys (scope, key, request_hash, sealed_reply, created_at)
           select 's', n::text || $2::text, '', '', $2::timestamptz - interval '32 days' from generate_series(1, $1::int) as n`,
    empty: () => {
      const sealing = createSealing([registerSecret('sealing-key-of-the-expiry-tests-0123456789')])
      return createIdempotency({ pool: core.sql, sealing, now }).forgetOld()
    },
  },
  {
    table: 'idempotency_claims',
    fill: `insert into idempotency_claims (scope, key, claim, claimed_until)
           select 's', n::text || $2::text, gen_random_uuid(), $2::timestamptz from generate_series(1, $1::int) as n`,
    empty: () => {
      const sealing = createSealing([registerSecret('sealing-key-of-the-expiry-tests-0123456789')])
      return createIdempotency({ pool: core.sql, sealing, now }).forgetOld()
    },
  },
  {
    table: 'decisions',
    fill: `insert into decisions (id, app_id, recorded_at, record)
           select n::text || $2::text, null, $2::timestamptz - interval '7 days', '{}' from generate_series(1, $1::int) as n`,
    empty: () => createDecisions({ pool: core.sql, now }).deleteOld(),
  },
  {
    table: 'used_provider_logins',
    fill: `insert into used_provider_logins (state_hash, expires_at)
           select decode(md5(n::text || $2::text), 'hex'), $2::timestamptz from generate_series(1, $1::int) as n`,
    empty: async () => {
      for (const deleteBatch of deletions)
        await deleteInBatches((limit) => deleteBatch(core.sql, begin, limit))
    },
  },
]

describe('upkeep', () => {
  for (const { table, fill, empty } of tables)
    it(`deletes 50,000 expired rows of ${table} in one round, and keeps others`, async () => {
      await core.sql.query(`delete from ${table}`)
      await core.sql.query(fill, [many, new Date(begin.getTime() - 1_000)])
      await core.sql.query(fill.replaceAll("'g' ||", "'later' ||"), [
        1,
        new Date(begin.getTime() + day),
      ])
      expect(await count(table)).toBe(many + 1)
      await empty()
      expect(await count(table)).toBe(1)
    }, 60_000)
})
