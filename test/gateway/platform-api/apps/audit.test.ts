import { afterAll, beforeAll, expect, describe, it } from 'vitest'
import type { TestApp } from '../../../core/support.ts'
import { type Person, logInTo } from '../../../support/web/people.ts'
import { type Console, startConsole } from '../../console.ts'
import { asRecord } from '../../support.ts'

let console: Console
let app: TestApp
let owner: Person
beforeAll(async () => {
  console = await startConsole()
  app = await console.newApp()
  owner = await logInTo(console, app, 'owner')
  // More than two pages of the export, one second apart.
  await console.sql.query(
    `insert into audit_log (app_id, id, actor, action, status, details, created_at)
     select app_id, gen_random_uuid(), 'filler', 'filled', 'success', json_build_object('n', n),
            '2026-01-01T00:00:00Z'::timestamptz + n * interval '1 second'
     from clients, generate_series(1, 1100) as n where client_id = $1`,
    [app.clientId],
  )
})
afterAll(() => console.stop())

async function read(query = '') {
  const answer = await console.ask('GET', `/api/v1/apps/${app.clientId}/audit/export${query}`, {
    person: owner,
  })
  const lines = answer.text.split('\n')
  // Every line ends with a newline, by which a reader detects a truncated one.
  expect(lines.at(-1)).toBe('')
  const entries = lines.slice(0, -1).map((line) => asRecord(JSON.parse(line)))
  return { type: answer.headers.get('content-type'), entries }
}

const numbers = (entries: readonly Record<string, unknown>[]): unknown[] =>
  entries.flatMap(({ action, details }) => (action === 'filled' ? [asRecord(details)['n']] : []))

describe('audit log export', () => {
  it('streams every entry once, oldest first, over several pages', async () => {
    const { type, entries } = await read()
    expect(type).toBe('application/x-ndjson; charset=utf-8')
    expect(numbers(entries)).toEqual(Array.from({ length: 1_100 }, (_, i) => i + 1))
    expect(entries.at(0)).toEqual({
      id: expect.any(String),
      actor: 'filler',
      action: 'filled',
      status: 'success',
      correlationId: null,
      details: { n: 1 },
      createdAt: '2026-01-01T00:00:01.000Z',
      cursor: expect.any(String),
    })
  })

  it("continues after a line's cursor", async () => {
    const { entries } = await read()
    const cursor = String(entries[699]?.['cursor'])
    expect(numbers((await read(`?cursor=${cursor}`)).entries).at(0)).toBe(701)
  })

  it("contains only the app's entries, even with another app's cursor", async () => {
    const other = await console.newApp()
    const stranger = await logInTo(console, other, 'owner')
    const ask = (of: TestApp, person: Person, query = '') =>
      console.ask('GET', `/api/v1/apps/${of.clientId}/audit/export${query}`, { person })
    expect((await ask(app, stranger)).status).toBe(404)
    expect((await ask(other, stranger)).text).not.toContain('"filled"')
    const cursor = String((await read()).entries[699]?.['cursor'])
    // A cursor is a point in time; the path determines the app.
    const behind = await ask(other, stranger, `?cursor=${cursor}`)
    expect([behind.status, behind.text.includes('"filled"')]).toEqual([200, false])
  })

  it('keeps any entry on one line, and accepts any span', async () => {
    const odd = 'a\n{"action":"forged"}\r\n\u2028\u202e"'
    await console.sql.query(
      `insert into audit_log (app_id, id, actor, action, status, details, created_at)
       select app_id, gen_random_uuid(), $2, 'odd', 'success', json_build_object('text', $2::text), '2025-01-01'
       from clients where client_id = $1`,
      [app.clientId, odd],
    )
    const { entries } = await read('?since=0001-01-01&until=9999-12-31')
    expect(numbers(entries)).toHaveLength(1_100)
    expect(entries.filter(({ action }) => action === 'forged')).toEqual([])
    expect(entries.find(({ action }) => action === 'odd')).toMatchObject({
      actor: odd,
      details: { text: odd },
    })
    const backwards = `/api/v1/apps/${app.clientId}/audit/export?since=9999-12-31&until=0001-01-01`
    expect((await console.ask('GET', backwards, { person: owner })).status).toBe(400)
  })

  it('filters by actor, and refuses what can be no actor', async () => {
    const url = `/api/v1/apps/${app.clientId}/audit`
    const ask = (query: string) => console.ask('GET', `${url}${query}`, { person: owner })
    const { status, body } = await ask('?actor=filler&limit=3')
    expect(status).toBe(200)
    const listed = body['entries']
    expect(numbers(Array.isArray(listed) ? listed.map(asRecord) : [])).toEqual([1100, 1099, 1098])
    expect((await ask('?actor=fill')).body['entries']).toEqual([])
    expect(numbers((await read('?actor=filler&until=2026-01-01T00:00:03Z')).entries)).toEqual([
      1, 2,
    ])
    for (const actor of ['', 'a%00b', 'x'.repeat(201)])
      expect((await ask(`?actor=${actor}`)).status).toBe(400)
  })

  it('filters by action and by a span that includes its start and excludes its end', async () => {
    const span = 'action=filled&since=2026-01-01T00:00:05Z&until=2026-01-01T00:00:08Z'
    expect(numbers((await read(`?${span}`)).entries)).toEqual([5, 6, 7])
    expect((await read('?action=filled&since=2026-01-02')).entries).toEqual([])
    const list = await console.ask('GET', `/api/v1/apps/${app.clientId}/audit?${span}`, {
      person: owner,
    })
    const listed = list.body['entries']
    expect(numbers(Array.isArray(listed) ? listed.map(asRecord) : [])).toEqual([7, 6, 5])
  })
})
