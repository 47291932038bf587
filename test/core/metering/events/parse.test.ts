import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type EventProblem,
  type ParsedEvent,
  type SignedTicket,
  foldEvent,
  parseEvent,
  quarantineReasons,
  usualLimits,
} from '../../../../core/metering/events/parse.ts'
import { envelope, eventData } from '../harness.ts'

const now = new Date('2026-09-14T10:20:00Z')
const parse = (bytes: Buffer | string): ParsedEvent => parseEvent(Buffer.from(bytes), now)

function ticket(bytes: Buffer | string): SignedTicket {
  const parsed = parse(bytes)
  if (parsed.kind !== 'ticket')
    throw new Error(
      `not a ticket: ${JSON.stringify(parsed, (_, v) => (typeof v === 'bigint' ? String(v) : v))}`,
    )
  return parsed.ticket
}
function problem(bytes: Buffer | string): EventProblem {
  const parsed = parse(bytes)
  if (parsed.kind !== 'problem') throw new Error(`no problem: ${parsed.kind}`)
  return parsed.problem
}
const raw = (data: string, more = ''): string =>
  `{"id":"e-1","type":"create_signed_ticket"${more},"data":${data}}`
const withMember = (name: string, literal: string): string =>
  raw(JSON.stringify({ ...eventData, [name]: '@' }).replace('"@"', literal))

describe('create_signed_ticket event', () => {
  it('is read exactly as the signer wrote it (K1)', () => {
    expect(ticket(envelope({}, { id: '7b0c2b3e' }))).toEqual({
      eventId: '7b0c2b3e',
      clientId: 'acme',
      externalUserId: 'alice',
      signedAt: '2026-09-14T10:15:30.123456Z',
      signedAtMs: 1789380930123,
      signedAtMicros: 1789380930123456,
      sessionId: '9f86d081',
      sequenceNumber: '0',
      requestId: '1a2b3c4d',
      manifestId: 'sess-01J7',
      appName: 'acme/echo',
      pipeline: 'live',
      modelId: 'unknown',
      fee: 120000n,
      billableSecs: '10',
      pixels: '0',
      numTickets: 1,
      orchAddress: '0x5bE44e23041E93CDF9bCd5A0968524e104e38ae1',
      orchUrl: 'https://orch.example:8935',
      emittedAtMs: 1789380930131,
      statedUsd: null,
    })
  })

  it.each([
    ['acme:user:42', 'acme', 'user:42'],
    ['acme:team:42', 'acme', 'team:42'],
    ['acme: alice ', 'acme', 'alice'],
    ['acme:a#b😀', 'acme', 'a#b😀'],
  ])(
    'belongs to the user in auth_id %s, split at the first colon (K9)',
    (authId, clientId, externalUserId) => {
      expect(ticket(envelope({ auth_id: authId }))).toMatchObject({ clientId, externalUserId })
    },
  )

  it('keeps fees beyond 2^53 to the last wei (K11) and accepts zero (K12)', () => {
    expect(ticket(envelope({ computed_fee: '9007199254740993' })).fee).toBe(9007199254740993n)
    expect(ticket(envelope({ computed_fee: '0' })).fee).toBe(0n)
    expect(ticket(envelope({ computed_fee: `1${'0'.repeat(20)}` })).fee).toBe(10n ** 20n)
  })

  it.each([
    '"-1"',
    '"1.5"',
    '"1e3"',
    '""',
    '" 5"',
    '"+5"',
    '"007"',
    '"0x10"',
    'null',
    'true',
    '[]',
    '1.5',
    '1e3',
    '-1',
    '9007199254740993',
    `"1${'0'.repeat(1000)}"`,
  ])('is quarantined with the fee %s (K13)', (literal) => {
    expect(problem(withMember('computed_fee', literal)).reason).toBe('invalid_fee')
  })

  it('is quarantined without a fee, or above the highest fee with advice', () => {
    expect(problem(envelope({ computed_fee: undefined })).reason).toBe('invalid_fee')
    expect(problem(envelope({ computed_fee: String(10n ** 20n + 1n) }))).toMatchObject({
      reason: 'fee_out_of_range',
      fee: 10n ** 20n + 1n,
      detail:
        'computed_fee is 100.000000000000000001 ETH, more than TICKET_MAX_FEE_ETH=100 allows; raise the setting and redrive the event if the signer did sign it, else discard it',
    })
    const high = Buffer.from(envelope({ computed_fee: String(10n ** 21n) }))
    expect(parseEvent(high, now, { ...usualLimits, maxFeeEth: 1_000 }).kind).toBe('ticket')
    expect(parseEvent(high, now, { ...usualLimits, maxFeeEth: 999 }).kind).toBe('problem')
    expect(problem(envelope({ computed_fee: '9'.repeat(78) }))).toMatchObject({
      reason: 'fee_out_of_range',
      fee: BigInt('9'.repeat(78)),
      detail: expect.stringContaining('computed_fee is a number of 78 digits, more than'),
    })
    expect(problem(envelope({ computed_fee: '9'.repeat(79) }))).toMatchObject({
      reason: 'fee_out_of_range',
      fee: null,
    })
  })

  it('accepts a numeric fee too small for float rounding (K13)', () => {
    expect(ticket(withMember('computed_fee', '120000')).fee).toBe(120000n)
  })

  it.each([
    ['60', '60'],
    ['5.123456789', '5.123456789'],
    ['-0.0015', '-0.0015'],
    ['1e-9', '0.000000001'],
    ['1E-09', '0.000000001'],
    ['0', '0'],
    ['-0', '0'],
    ['1.5e2', '150.0'],
    ['12.5e-1', '1.25'],
    ['5e-324', '0'],
    ['null', '0'],
    ['"2.5"', '2.5'],
    ['0.1234567890123456789012345678901234', '0.123456789012345678901234567890'],
  ])('keeps billable_secs %s as the decimal %s (K14)', (literal, text) => {
    expect(ticket(withMember('billable_secs', literal)).billableSecs).toBe(text)
  })

  it('keeps a sequence number of 63 bits exactly, and rejects one of 64', () => {
    expect(ticket(withMember('sequence_number', '9223372036854775806')).sequenceNumber).toBe(
      '9223372036854775806',
    )
    expect(ticket(withMember('sequence_number', '9007199254740993')).sequenceNumber).toBe(
      '9007199254740993',
    )
    for (const literal of ['9223372036854775807', '-1', '1.0', '1e2', 'null', '"x"']) {
      expect(problem(withMember('sequence_number', literal)).reason).toBe('invalid_sequence')
    }
  })

  it.each([
    ['billable_secs', '1e400000'],
    ['billable_secs', '1e13'],
    ['billable_secs', '"x"'],
    ['billable_secs', '[]'],
    ['pixels', '9223372036854775808'],
    ['pixels', '1.5'],
    ['num_tickets', '-1'],
    ['num_tickets', '4294967296'],
  ])('is quarantined when %s is %s', (name, literal) => {
    expect(problem(withMember(name, literal))).toMatchObject({
      reason: 'invalid_number',
      fee: 120000n,
    })
  })

  it('is read from older and newer signers (K18)', () => {
    expect(
      ticket(envelope({ app: undefined, cost: undefined, cost_per_pixel: '12000.0' })),
    ).toMatchObject({ appName: '', fee: 120000n })
    expect(
      ticket(envelope({ auth_id: undefined, client_id: 'acme', usage_subject: 'alice' })),
    ).toMatchObject({ clientId: 'acme', externalUserId: 'alice' })
    expect(
      ticket(
        envelope({
          computed_fee_usd: null,
          payer_address: '0x1',
          session_id: 'a'.repeat(32),
          pixels: '42',
        }),
      ),
    ).toMatchObject({ pixels: '42' })
    expect(problem(envelope({ auth_id: undefined }))).toMatchObject({
      reason: 'unattributed',
      fee: 120000n,
    })
  })

  it.each([
    [{ pipeline: 'live-video-to-video:streamdiffusion' }, 'live-video-to-video', 'streamdiffusion'],
    [{ pipeline: 'byoc:a:b', model_id: 'explicit' }, 'byoc', 'explicit'],
    [{ pipeline: 'a:b:c' }, 'a', 'b:c'],
    [{ pipeline: '' }, 'unknown', 'unknown'],
    [{ pipeline: 42 }, 'unknown', 'unknown'],
    [{ pipeline: ':m' }, 'unknown', 'm'],
  ])('splits %j into base and model (K19)', (data, pipeline, modelId) => {
    expect(ticket(envelope(data))).toMatchObject({ pipeline, modelId })
  })

  it('converts any RFC 3339 instant to UTC microseconds', () => {
    expect(ticket(envelope({ current_time: '2026-09-14T12:15:30.5+02:00' })).signedAt).toBe(
      '2026-09-14T10:15:30.500000Z',
    )
    for (const current_time of [
      'yesterday',
      '2026-02-30T00:00:00Z',
      '2026-01-01T24:00:00Z',
      '2026-01-01',
      1789380930,
      null,
    ]) {
      expect(problem(envelope({ current_time })).reason).toBe('invalid_time')
    }
  })

  it('names the exceeded bound of a ticket too old or too far ahead', () => {
    expect(problem(envelope({ current_time: '2019-12-31T23:59:59Z' }))).toMatchObject({
      reason: 'time_out_of_range',
      detail:
        'signed 2019-12-31T23:59:59.000000Z, further back than TICKET_MAX_AGE_DAYS=365 allows',
    })
    expect(problem(envelope({ current_time: '2026-09-15T10:20:01Z' }))).toMatchObject({
      reason: 'time_out_of_range',
      detail: expect.stringContaining('further ahead than TICKET_MAX_AHEAD_SECONDS=86400 allows'),
    })
    const at = (current_time: string, maxAgeDays: number, maxAheadSeconds: number) =>
      parseEvent(Buffer.from(envelope({ current_time })), now, {
        ...usualLimits,
        maxAgeDays,
        maxAheadSeconds,
      }).kind
    const ms = (offset: number) => new Date(now.getTime() + offset).toISOString()
    expect([at(ms(-7 * 86_400_000), 7, 1), at(ms(-7 * 86_400_000 - 1), 7, 1)]).toEqual([
      'ticket',
      'problem',
    ])
    expect([at(ms(37_000), 7, 37), at(ms(37_001), 7, 37)]).toEqual(['ticket', 'problem'])
  })

  it('folds an upper-case UUID, and keeps other ids unchanged', () => {
    const id = '0198C0DE-0000-4000-8000-00000000ABCD'
    const bytes = (of: string) => Buffer.from(envelope({}, { id: of }))
    expect(ticket(bytes(id)).eventId).toBe(id.toLowerCase())
    expect(ticket(bytes('Event-1')).eventId).toBe('Event-1')
    expect(foldEvent(bytes(id), id.toLowerCase())).toEqual(bytes(id.toLowerCase()))
    expect(problem(envelope({ computed_fee: 'x' }, { id })).eventId).toBe(id.toLowerCase())
  })

  it('shortens a long manifest id to its beginning and a hash', () => {
    const [a, b] = ['a', 'b'].map(
      (end) => ticket(envelope({ manifest_id: `${'ü'.repeat(300)}${end}` })).manifestId,
    )
    expect(Buffer.byteLength(a ?? '')).toBeLessThanOrEqual(256)
    expect(a).toMatch(/^ü+~[0-9a-f]{64}$/)
    expect(a).not.toBe(b)
    expect(ticket(envelope({ manifest_id: 'a\u0000b' })).manifestId).toBe('a\ufffdb')
  })

  it.each([
    ['', 'unattributed'],
    ['acme', 'unknown_client'],
    [':alice', 'unknown_client'],
    ['acme:', 'invalid_subject'],
    ['acme:\u0007', 'invalid_subject'],
    ['acme:a\u0007', 'invalid_subject'],
    [`acme:${'x'.repeat(201)}`, 'invalid_subject'],
  ])('with auth_id %j is %s and keeps its amount (K8, K10)', (auth_id, reason) => {
    expect(problem(envelope({ auth_id }))).toMatchObject({ reason, fee: 120000n })
  })
})

describe('other input', () => {
  it('is ignored by type, with any data (K15, K16)', () => {
    for (const data of [{ clientIP: '' }, [{ address: '0x' }], null, 'text', 7, undefined]) {
      expect(parse(envelope({}, { type: 'discovery_results', data })).kind).toBe('ignored')
    }
    expect(parse(envelope({}, { type: 'create_new_payment', id: undefined })).kind).toBe('ignored')
  })

  it.each([
    ['not json', 'not_json'],
    ['', 'not_json'],
    ['{"id":1', 'not_json'],
    ['{"a":1}x', 'not_json'],
    ['\ufeff{}', 'not_json'],
    ['{"a":01}', 'not_json'],
    ['{"a":"\u0001"}', 'not_json'],
    ['{"a":"\\x"}', 'not_json'],
    ['[]', 'not_an_object'],
    ['null', 'not_an_object'],
    ['{}', 'no_id'],
    ['{"id":"x"}', 'no_type'],
    ['{"id":5,"type":"create_signed_ticket"}', 'invalid_id'],
    ['[['.repeat(50_000), 'too_deep'],
    ['{"a":'.repeat(100), 'too_deep'],
    ['{"id":"x","id":"y"}', 'duplicate_member'],
    ['{"id":"x","\\u0069d":"y"}', 'duplicate_member'],
    [raw('null'), 'invalid_data'],
    [raw('[]'), 'invalid_data'],
    [raw('{}'), 'invalid_fee'],
    [raw('{}').replace('e-1', 'x'.repeat(201)), 'invalid_id'],
    [raw('{}').replace('e-1', '\\u0000'), 'invalid_id'],
  ])('%.40s is quarantined as %s (K17)', (text, reason) => {
    expect(problem(text).reason).toBe(reason)
  })

  it('is quarantined if it is not UTF-8 or is above 1 MiB (K17)', () => {
    expect(problem(Buffer.from([0x7b, 0xff, 0x7d])).reason).toBe('not_utf8')
    expect(problem(Buffer.alloc(1024 * 1024 + 1, 0x20)).reason).toBe('too_large')
    expect(problem(Buffer.alloc(1024 * 1024, 0x20)).reason).toBe('not_json')
  })

  it('reports the problem and known fields of a pushed event without an id', () => {
    const pushed = {
      type: 'create_signed_ticket',
      data: {
        client_id: 'acme',
        usage_subject: 'alice',
        request_id: 'r',
        computed_fee: '7',
        pixels: '1',
        pipeline: 'live',
      },
    }
    expect(problem(JSON.stringify(pushed))).toMatchObject({
      reason: 'no_id',
      authId: 'acme:alice',
      fee: 7n,
    })
  })
})

const json = fc.json({ maxDepth: 6 })
const hostile = fc.oneof(
  fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
  json.map((text) => Buffer.from(text)),
  fc
    .record(
      {
        id: fc.anything(),
        type: fc.constantFrom('create_signed_ticket', 'x', null),
        data: fc.anything(),
      },
      { requiredKeys: [] },
    )
    .map((value) =>
      Buffer.from(
        JSON.stringify(value, (_, v: unknown) => (typeof v === 'bigint' ? String(v) : v)),
      ),
    ),
  fc
    .dictionary(fc.constantFrom(...Object.keys(eventData)), fc.jsonValue(), { maxKeys: 4 })
    .map((data) => envelope(data)),
  fc
    .tuple(fc.nat({ max: 900 }), fc.uint8Array({ minLength: 1, maxLength: 4 }))
    .map(([at, noise]) => {
      const bytes = envelope()
      bytes.set(noise.subarray(0, Math.max(0, bytes.length - at)), Math.min(at, bytes.length))
      return bytes
    }),
)

function isWellFormed(parsed: ParsedEvent): boolean {
  if (parsed.kind === 'problem') return quarantineReasons.includes(parsed.problem.reason)
  if (parsed.kind === 'ignored') return true
  const { eventId, sessionId, sequenceNumber, billableSecs, pixels, manifestId } = parsed.ticket
  return (
    ![eventId, sessionId, manifestId].join('').includes('\u0000') &&
    /^\d{1,20} -?\d{1,19} -?\d{1,12}(\.\d{1,30})?$/.test(
      `${sequenceNumber} ${pixels} ${billableSecs}`,
    )
  )
}

// fast-check prints the seed of a failed run.
describe('parser', () => {
  it('returns a ticket, ignored or a known reason for every input, and never throws', () => {
    expect(() =>
      fc.assert(
        fc.property(hostile, (bytes) => isWellFormed(parseEvent(bytes, now))),
        { numRuns: 3_000 },
      ),
    ).not.toThrow()
  })

  it('keeps every fee and sequence number to the last digit', () => {
    fc.assert(
      fc.property(
        fc.bigInt({ min: 0n, max: 10n ** 20n }),
        fc.bigInt({ min: 0n, max: 2n ** 63n - 2n }),
        (fee, sequence) => {
          const parsed = ticket(
            withMember('sequence_number', String(sequence)).replace('"120000"', `"${fee}"`),
          )
          expect([parsed.fee, parsed.sequenceNumber]).toEqual([fee, String(sequence)])
        },
      ),
      { numRuns: 300 },
    )
  })

  it('reads any JSON that JSON.parse reads', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 5 }), (data) => {
        expect(parse(JSON.stringify({ type: 'other', data })).kind).toBe('ignored')
        expect(parse(JSON.stringify({ type: 'other', data }, null, 2)).kind).toBe('ignored')
      }),
      { numRuns: 300 },
    )
  })
})
