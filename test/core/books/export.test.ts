import { createHash } from 'node:crypto'
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { gunzipSync, gzipSync, zstdDecompressSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { connectCore } from '../../../deploy/cli/client.ts'
import { begin, observedRate, outcome, refusal, serviceToken } from '../support.ts'
import { type BooksWorld, startBooks, tollgate } from './support.ts'

let from: BooksWorld
let folder: string
let core: ReturnType<typeof connectCore>
const path = (name: string) => join(folder, name)
const at = (seconds: number) => new Date(begin.getTime() + seconds * 1_000).toISOString()

const odd = 'Zoë "the\\first" 日本'
const columns = `u.external_user_id, t.event_id, t.signed_at::text, t.session_id, t.sequence_number, t.request_id, t.manifest_id, t.app_name,
  t.pipeline, t.model_id, t.fee_wei, t.cost_attos, t.billable_secs, t.pixels, t.num_tickets, t.orch_address, t.orch_url, t.emitted_at::text,
  r.usd_attos_per_eth, r.source, r.observed_at::text`
const ticketsOf = (world: BooksWorld) =>
  world.rows(`select ${columns} from tickets t join end_users u on u.app_id = t.app_id and u.id = t.user_id
  left join rates r on r.id = t.rate_id order by t.event_id`)

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-export-'))
  from = await startBooks(observedRate)
  core = connectCore({ target: from.core.target, token: serviceToken })
  const many = Array.from({ length: 1_203 }, (_, i) => ({
    auth_id: `${from.app.clientId}:user-${i % 7}`,
    session_id: `s${i % 11}`,
    sequence_number: i,
    computed_fee: String(i * 1_000),
    current_time: `2026-03-10T11:${String(i % 60).padStart(2, '0')}:00.${String(i).padStart(6, '0')}Z`,
    billable_secs: `${i}.000000001`,
    manifest_id: `m ${i} ${odd}`,
  }))
  // Rates of that time: 3000 at `begin`, others before.
  await core.metering.recordRate({
    usdPerEth: '2999.000000000000000001',
    source: 'desk',
    observedAt: '2026-03-10T10:59:00.5Z',
  })
  await core.metering.recordRate({
    usdPerEth: '3100',
    source: 'desk',
    observedAt: '2026-03-10T11:30:00Z',
  })
  for (let i = 0; i < many.length; i += 400) await from.ingest(...many.slice(i, i + 400))
  await from.ingest({
    id: 'E-1',
    auth_id: `${from.app.clientId}:${odd}`,
    computed_fee: '1',
    current_time: at(0),
  })
})
afterAll(async () => {
  core.close()
  await from.stop()
  await rm(folder, { recursive: true })
})

const run = (...argv: string[]) => tollgate(...argv)
const exportTo = (name: string, ...more: string[]) =>
  run('export', '--app', from.app.clientId, '--out', path(name), ...more)

/**
 * Runs `work` with another deployment that has its own app. The command line points there
 * meanwhile.
 */
async function elsewhere(work: (to: BooksWorld) => Promise<void>): Promise<void> {
  const to = await startBooks(observedRate)
  try {
    await work(to)
  } finally {
    await to.stop()
    vi.stubEnv('CORE_TARGET', from.core.target)
    vi.stubEnv('CORE_TOKEN', serviceToken)
  }
}

describe('tollgate export', () => {
  it('writes every ticket once, with a manifest and valid checksums', async () => {
    const { code, text } = await exportTo('all.ndjson.gz')
    expect([code, text]).toEqual([
      0,
      expect.stringMatching(/: 1204 tickets in 3 chunks, SHA-256 [0-9a-f]{64}\n$/),
    ])
    const lines = gunzipSync(await readFile(path('all.ndjson.gz')))
      .toString()
      .trimEnd()
      .split('\n')
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      kind: 'manifest',
      format: 'tollgate-tickets',
      version: 2,
      clientId: from.app.clientId,
      from: null,
      to: null,
    })
    const tickets = lines.filter((line) => !line.startsWith('{"kind":'))
    expect(new Set(tickets.map((line) => JSON.parse(line).id)).size).toBe(1_204)
    const sha256 = createHash('sha256')
      .update(tickets.map((line) => `${line}\n`).join(''))
      .digest('hex')
    expect(JSON.parse(lines.at(-1) ?? '')).toEqual({
      kind: 'end',
      tickets: 1_204,
      chunks: 3,
      sha256,
    })
    expect(text).toContain(sha256)
    // The zstd file has the same content.
    await exportTo('all.ndjson.zst')
    expect(
      zstdDecompressSync(await readFile(path('all.ndjson.zst')))
        .toString()
        .split('\n')
        .slice(1, -1),
    ).toEqual(lines.slice(1))
  })

  it('accepts a range of signing times', async () => {
    expect(
      (await exportTo('range.gz', '--from', '2026-03-10T11:10:00Z', '--to', '2026-03-10T11:12:00Z'))
        .text,
    ).toContain(': 40 tickets in 1 chunks')
    expect((await exportTo('none.gz', '--to', '2026-03-10')).text).toContain(
      ': 0 tickets in 0 chunks',
    )
    expect((await run('import', path('none.gz'))).text).toContain('0 tickets imported')
  })

  it('keeps an existing file unless --force is given', async () => {
    await writeFile(path('kept.gz'), 'mine')
    expect((await exportTo('kept.gz')).text).toContain('exists; --force replaces it')
    expect(await readFile(path('kept.gz'), 'utf8')).toBe('mine')
    expect((await exportTo('kept.gz', '--force')).code).toBe(0)
  })

  it('rejects malformed apps, times, cursors and file names', async () => {
    expect((await run('export', '--app', 'app_x', '--out', path('x.gz'))).text).toBe(
      'tollgate: no app has this client id\n',
    )
    const written = (await readdir(dirname(path('x')))).filter((name) => name.startsWith('x.'))
    expect(written).toEqual([])
    expect((await exportTo('x.json')).code).toBe(2)
    expect((await run('export', '--out', path('x.gz'))).code).toBe(2)
    expect((await exportTo('x.gz', '--from', 'then')).text).toContain('from must be an ISO 8601')
    expect((await exportTo('x.gz', '--from', '2026-03-10', '--to', '2026-03-10')).text).toContain(
      'from must be before to',
    )
    expect(
      await outcome(
        core.books.exportTickets({
          clientId: from.app.clientId,
          from: undefined,
          to: undefined,
          cursor: 'eA',
        }),
      ),
    ).toBe('REQUEST_INVALID')
    expect((await run('export', '--help')).text).toContain('tollgate export [--app APP]')
  })
})

describe('tollgate import', () => {
  it('changes nothing in the deployment of origin', async () => {
    const before = await from.rows('select * from balances order by user_id')
    await exportTo('again.zst')
    expect(await run('import', path('again.zst'))).toEqual({
      code: 0,
      text: `${path('again.zst')}: 0 tickets imported, 1204 already present, 0 restored\n`,
    })
    expect(await from.rows('select * from balances order by user_id')).toEqual(before)
  })

  it('creates the same tickets with their prices in another deployment, and charges once', async () => {
    await exportTo('move.zst')
    const original = await ticketsOf(from)
    await elsewhere(async (to) => {
      expect((await run('import', path('move.zst'))).text).toContain('no app has this client id')
      expect((await run('import', path('move.zst'), '--app', to.app.clientId)).text).toContain(
        '1204 tickets imported, 0 already present',
      )
      expect(await ticketsOf(to)).toEqual(original)
      expect(
        (await run('import', path('move.zst'), '--app', to.app.clientId, '--json')).text,
      ).toContain('"duplicates": 1204')
      await tollgate('rebuild')
      expect((await tollgate('verify')).text).toContain('8 users checked: the books are right')
      const spent = async (world: BooksWorld) =>
        world.rows(
          `select u.external_user_id, b.consumed_attos from balances b join end_users u on u.id = b.user_id order by 1`,
        )
      expect(await spent(to)).toEqual(await spent(from))
      // The signer's own event is a duplicate there, too.
      expect(
        await from.ingest({
          id: 'E-1',
          auth_id: `${from.app.clientId}:${odd}`,
          computed_fee: '1',
          current_time: at(0),
        }),
      ).toMatchObject({ duplicates: 1 })
    })
  })

  it('reports ids of other events, and keeps those events', async () => {
    await exportTo('conflict.gz', '--from', at(0))
    await elsewhere(async (to) => {
      await to.ingest({ id: 'E-1', computed_fee: '5', current_time: at(0) })
      const { code, text } = await run('import', path('conflict.gz'), '--app', to.app.clientId)
      expect([code, text]).toEqual([
        1,
        expect.stringContaining('CONFLICT another event has the id E-1 here; that event is kept'),
      ])
      expect(await to.rows('select fee_wei from tickets')).toEqual([{ fee_wei: '5' }])
    })
  })

  it('continues after an interruption, and keeps unpriced tickets waiting', async () => {
    await from.ingest({
      id: 'waiting',
      auth_id: `${from.app.clientId}:user-1`,
      computed_fee: '7',
      current_time: '2026-03-01T00:00:00Z',
    })
    await exportTo('unpriced.gz')
    await elsewhere(async (to) => {
      const there = connectCore({ target: to.core.target, token: serviceToken })
      const { lines, sha256 } = await core.books.exportTickets({
        clientId: from.app.clientId,
        from: undefined,
        to: undefined,
        cursor: undefined,
      })
      expect(
        await there.books.importTickets({
          clientId: to.app.clientId,
          lines,
          sha256,
          fileSha256: '',
        }),
      ).toMatchObject({ tickets: 500 })
      there.close()
      expect((await run('import', path('unpriced.gz'), '--app', to.app.clientId)).text).toContain(
        '705 tickets imported, 500 already present',
      )
      expect(await to.rows(`select cost_attos from tickets where event_id = 'waiting'`)).toEqual([
        { cost_attos: null },
      ])
    })
  })

  it('imports nothing from a damaged file, and reports the damage', async () => {
    await exportTo('good.gz')
    const text = gunzipSync(await readFile(path('good.gz'))).toString()
    const bytes = await readFile(path('good.gz'))
    const lines = text.split('\n')
    const damaged: Readonly<Record<string, Buffer>> = {
      'chunk 2 does not match its checksum': gzipSync(
        lines
          .map((line, i) => (i === 700 ? line.replace('"feeWei" : "', '"feeWei" : "9') : line))
          .join('\n'),
      ),
      'the end of the file is missing': gzipSync(
        lines
          .slice(0, -2)
          .map((line) => `${line}\n`)
          .join(''),
      ),
      'the file does not match its own sums': gzipSync(
        lines
          .filter(
            (line, i) => i === 0 || i > lines.findIndex((one) => one.startsWith('{"kind":"chunk"')),
          )
          .join('\n'),
      ),
      'the last line is cut off': gzipSync(text.slice(0, -10)),
      'it cannot be decompressed': bytes.subarray(0, bytes.length - 200),
      'this is not a ticket file': gzipSync('{"kind":"manifest"}\n'),
      'has version 3': gzipSync(text.replace('"version":2', '"version":3')),
      'a line is too long': gzipSync('x'.repeat(100_000)),
    }
    await elsewhere(async (to) => {
      for (const [message, content] of Object.entries(damaged)) {
        await writeFile(path('bad.gz'), content)
        const { code, text: told } = await run('import', path('bad.gz'), '--app', to.app.clientId)
        expect([code, told]).toEqual([1, expect.stringContaining(message)])
      }
      expect(await to.rows('select count(*) from tickets')).toEqual([{ count: '0' }])
    })
    expect((await run('import', path('absent.gz'))).text).toContain('ENOENT')
  })

  it('rejects invalid lines with a reason, and writes nothing', async () => {
    const good = (
      await core.books.exportTickets({
        clientId: from.app.clientId,
        from: at(0),
        to: undefined,
        cursor: undefined,
      })
    ).lines.toString()
    const send = (text: string, sha256 = createHash('sha256').update(text).digest('hex')) =>
      core.books.importTickets({
        clientId: from.app.clientId,
        lines: Buffer.from(text),
        sha256,
        fileSha256: '',
      })
    const change = (member: string, value: string) =>
      good.replace(
        new RegExp(`"${member}" : ("(?:[^"\\\\]|\\\\.)*"|null)`),
        `"${member}" : ${value}`,
      )
    const wrong: readonly (readonly [string, RegExp])[] = [
      [change('feeWei', '"-1"'), /feeWei is not/],
      [change('feeWei', '"2"'), /costAttos is not the fee at its rate/],
      [change('feeWei', `"${10n ** 28n}"`), /feeWei is not at most/],
      [change('costAttos', 'null'), /costAttos is not/],
      [change('rateAttosPerEth', '"0"'), /costAttos is not/],
      [
        change('rateObservedAt', '"2026-04-10T12:00:00.000000Z"'),
        /rateObservedAt is not before the ticket/,
      ],
      [change('digest', '"x"'), /digest/],
      [change('id', '""'), /id is not/],
      [change('user', '" "'), /user is not/],
      [change('signedAt', '"2026-02-31T00:00:00.000000Z"'), /signedAt|rateObservedAt/],
      [change('signedAt', '"2031-01-01T00:00:00.000000Z"'), /signedAt is out of range/],
      [change('sequence', '"9223372036854775807"'), /sequence/],
      [change('replayed', '"maybe"'), /replayed/],
      [change('charge', '"x"'), /charge is not a UUID/],
      [change('model', '5'), /model/],
      [change('model', '"\\u0000"'), /model/],
      ['null\n', /not a JSON object/],
      ['{\n', /not JSON/],
      ['\n', /not JSON/],
      ['{}', /lines must be whole/],
      ['', /lines must be whole/],
      ['{}\n'.repeat(1_001), /at most 1000 tickets/],
    ]
    for (const [text, message] of wrong) {
      const error = await refusal(send(text))
      expect([error.reason, error.message]).toEqual([
        'REQUEST_INVALID',
        expect.stringMatching(message),
      ])
    }
    expect((await refusal(send(good, 'x'))).message).toContain('do not match their checksum')
    expect(await send(good)).toMatchObject({ tickets: 0, duplicates: 1 })
  })

  it('accepts the options in its help', async () => {
    expect((await run('import')).code).toBe(2)
    expect((await run('import', 'a.json')).code).toBe(2)
    expect((await run('import', '--help')).text).toContain('tollgate import FILE')
  })
})
