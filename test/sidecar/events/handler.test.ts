import { randomBytes } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { splitEnvelopes } from '../../../sidecar/events/ndjson.ts'
import { refuse } from '../../fakes/sidecar-core.ts'
import { type Harness, post, secret, startHarness } from '../support.ts'

const caller = { authorization: `Bearer ${secret}` }
const envelope =
  '{"id":"7b0c2b3e-3f0e-4a53-9a0c-6f1c8b1f2a11","type":"create_signed_ticket","timestamp":"1789380930131",' +
  '"gateway":"","data":{"auth_id":"acme:alice","computed_fee":"9007199254740993","pixels":9007199254740993}}'

const push = ({ sidecar }: Harness, body: string | Buffer, headers: Record<string, string> = {}) =>
  post(`${sidecar.url}/events`, body, { ...caller, ...headers })
const taken = ({ core }: Harness): string[] =>
  core.script.ingested.map((bytes) => Buffer.from(bytes).toString())

describe('POST /events', () => {
  it('forwards one envelope unchanged, and answers when core has stored it', async () => {
    const harness = await startHarness()
    harness.core.script.ingest = () => ({ tickets: 1, duplicates: 2, ignored: 3, quarantined: 4 })
    const reply = await push(harness, ` ${envelope}\n`, { 'x-correlation-id': 'abc-1' })
    expect(reply.transport).toBe(202)
    expect(reply.json).toEqual({
      accepted: 1,
      tickets: 1,
      duplicates: 2,
      ignored: 3,
      quarantined: 4,
    })
    expect(reply.headers['x-correlation-id']).toBe('abc-1')
    expect(taken(harness)).toEqual([envelope])
    expect(harness.core.calls.tokens).toContain('core-token-of-these-tests-0123456789')
  })

  it('accepts an array, keeping every digit of every element', async () => {
    const harness = await startHarness()
    const reply = await push(
      harness,
      `[ ${envelope} ,\n${envelope},{"type":"create_signed_ticket","data":{"request_id":"r1"}}]`,
    )
    expect(reply.json['accepted']).toBe(3)
    expect(taken(harness)).toEqual([
      envelope,
      envelope,
      '{"type":"create_signed_ticket","data":{"request_id":"r1"}}',
    ])
    expect((await push(harness, '[]')).json).toMatchObject({ accepted: 0, tickets: 0 })
  })

  it('accepts lines, including malformed ones, which core quarantines', async () => {
    const harness = await startHarness()
    const reply = await push(harness, `${envelope}\r\n\n  \n{"broken":\n${envelope}`)
    expect(reply.json['accepted']).toBe(3)
    expect(taken(harness)).toEqual([envelope, '{"broken":', envelope])
  })

  it('splits more lines than core accepts into several requests', async () => {
    const harness = await startHarness()
    const lines = Array.from({ length: 2500 }, (_, i) => `{"id":"${i}"}`)
    expect((await push(harness, lines.join('\n'))).json).toMatchObject({
      accepted: 2500,
      tickets: 2500,
    })
    expect(harness.core.calls.ingestEvents).toBe(3)
    const fat = Array.from({ length: 3 }, () =>
      JSON.stringify(randomBytes(900_000).toString('base64')),
    )
    expect((await push(harness, fat.join('\n'))).json['accepted']).toBe(3)
    expect(taken(harness)).toEqual([...lines, ...fat])
  })

  it('acknowledges nothing while core is unavailable or refuses', async () => {
    const harness = await startHarness()
    harness.core.script.ingest = () => {
      throw refuse('UNAVAILABLE')
    }
    const refused = await push(harness, envelope)
    expect([refused.transport, refused.json['code']]).toEqual([503, 'unavailable'])
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
    harness.core.stop()
    expect((await push(harness, envelope)).transport).toBe(503)
  })

  it('refuses a caller without the secret before it reads the body', async () => {
    const harness = await startHarness()
    const reply = await post(`${harness.sidecar.url}/events`, envelope, {
      authorization: 'Bearer wrong',
    })
    expect([reply.transport, reply.headers['www-authenticate']]).toEqual([401, 'Bearer'])
    expect(reply.headers['content-type']).toBe('application/problem+json')
    expect(harness.core.calls.ingestEvents).toBe(0)
  })

  it.each([
    { what: 'nothing', body: '', status: 400, detail: /no event/ },
    { what: 'a broken array', body: '[{"id":"1"}', status: 400, detail: /array/ },
    { what: 'two arrays', body: '[{}][{}]', status: 400, detail: /array/ },
    {
      what: 'too long an array',
      body: `[${Array.from({ length: 1001 }, () => '{}').join()}]`,
      status: 413,
      detail: /1000/,
    },
    {
      what: 'too large a body',
      body: 'x'.repeat(4 * 1024 * 1024 + 1),
      status: 413,
      detail: /4 MiB/,
    },
    {
      what: 'too large an envelope',
      body: `"${'x'.repeat(2 * 1024 * 1024)}"`,
      status: 413,
      detail: /2 MiB/,
    },
  ])('refuses $what', async ({ body, status, detail }) => {
    const harness = await startHarness()
    const reply = await push(harness, body)
    expect(reply.transport).toBe(status)
    expect(reply.json['detail']).toMatch(detail)
    expect(harness.core.calls.ingestEvents).toBe(0)
  })

  it('refuses a compressed body', async () => {
    const harness = await startHarness()
    expect(
      (await push(harness, gzipSync(envelope), { 'content-encoding': 'gzip' })).transport,
    ).toBe(415)
    expect(harness.core.calls.ingestEvents).toBe(0)
  })
})

describe('splitEnvelopes', () => {
  it.each<[string, string[] | null]>([
    ['{"a":"]}\\"["}', ['{"a":"]}\\"["}']],
    ['{\n "a": 1\n}\n', ['{\n "a": 1\n}']],
    ['[1,"a,]",[2,3],{"b":[]}, null ]', ['1', '"a,]"', '[2,3]', '{"b":[]}', 'null']],
    ['[1,]', null],
    ['[,1]', null],
    ['[1 2]', ['1 2']],
    ['["open]', null],
    ['[}', null],
    ['[1] x', null],
    ['[', null],
    ['{"a":1}{"b":2}', ['{"a":1}{"b":2}']],
    ['"x"\n"y"', ['"x"', '"y"']],
    ['}', ['}']],
    // Truncated within a text, and without a closing bracket: the good line that follows is a
    // separate event.
    ['{"a":"b\n{"c":1,"\\"":""}}', ['{"a":"b', '{"c":1,"\\"":""}}']],
    ['{"a":{\n{"b":1}\n}}', ['{"a":{', '{"b":1}', '}}']],
  ])('splits %s', (body, expected) => {
    expect(splitEnvelopes(Buffer.from(body))?.envelopes.map(String) ?? null).toEqual(expected)
  })
})
