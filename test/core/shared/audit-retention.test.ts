import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { createAuditRetention } from '../../../core/shared/audit-log/retention.ts'
import { type TestCore, begin, day, startTestCore } from '../support.ts'

let core: TestCore
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(() => core.sql.query('delete from audit_log'))

const now = () => begin
const insert = (count: number, at: Date) =>
  core.sql.query(
    `insert into audit_log (app_id, id, actor, action, status, details, created_at)
     select null, gen_random_uuid(), 'filler', 'filled', 'success', json_build_object('n', n), $2
     from generate_series(1, $1::int) as n`,
    [count, at],
  )
const left = async () =>
  (await core.sql.query<{ n: number }>('select count(*)::int as n from audit_log')).rows[0]?.n

describe('createAuditRetention', () => {
  it('deletes 50,000 old entries in one round and keeps younger ones', async () => {
    await insert(50_000, new Date(begin.getTime() - 11 * day))
    await insert(7, new Date(begin.getTime() - 9 * day))
    const { deleteOld } = createAuditRetention(
      { pool: core.sql, now },
      { retentionDays: 10, exportDir: null },
    )
    await deleteOld()
    expect(await left()).toBe(7)
  }, 60_000)

  it('writes every entry to a private file of its month before deleting it', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'audit-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const exportDir = join(folder, 'old')
    await insert(2_500, new Date('2025-01-31T23:59:59.999Z'))
    await insert(3, new Date('2025-02-01T00:00:00.000Z'))
    const { deleteOld } = createAuditRetention(
      { pool: core.sql, now },
      { retentionDays: 10, exportDir },
    )
    await deleteOld()
    await deleteOld()
    expect([await left(), (await readdir(exportDir)).toSorted()]).toEqual([
      0,
      ['audit-2025-01.ndjson', 'audit-2025-02.ndjson'],
    ])
    const lines = (await readFile(join(exportDir, 'audit-2025-01.ndjson'), 'utf8')).split('\n')
    const numbers = lines.slice(0, -1).map((line) => JSON.parse(line).details.n)
    expect(new Set(numbers).size).toBe(2_500)
    expect(numbers).toHaveLength(2_500)
  })

  it('deletes no entry that it cannot write', async () => {
    await insert(3, new Date('2025-01-01T00:00:00.000Z'))
    const { deleteOld } = createAuditRetention(
      { pool: core.sql, now },
      { retentionDays: 10, exportDir: '/dev/null/nowhere' },
    )
    await expect(deleteOld()).rejects.toThrow('ENOTDIR')
    expect(await left()).toBe(3)
  })
})
