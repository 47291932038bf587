import { describe, expect, it } from 'vitest'
import { envelope, recordRate } from '../harness.ts'
import { alice, counts, ingest, rows, setUpWorld, world } from './world.ts'

setUpWorld()

const quarantine = () =>
  rows(
    'select event_id, reason, auth_id, fee_wei, deliveries from quarantine order by reason, event_id',
  )

describe('ingesting', () => {
  it('treats an event id in upper case as the same event, before and after', async () => {
    const data = { computed_fee: '987654321987', sequence_number: 7 }
    const ids = ['0198c0de-0000-4000-8000-00000000abcd', '0198c0de-0000-4000-9000-0000000fedcb']
    const [low, high] = ids.map((id) => [
      alice(data, { id }),
      alice(data, { id: id.toUpperCase() }),
    ])
    const [a, A, b, B] = [...(low ?? []), ...(high ?? [])]
    if (!a || !A || !b || !B) throw new Error('four events')
    expect(await ingest(a, A)).toEqual(counts(1, 1))
    expect(await ingest(B)).toEqual(counts(1))
    expect(await ingest(b, B, A)).toEqual(counts(0, 3))
    // Other bytes with the same id are not a repeat, in either case.
    expect(await ingest(alice({ computed_fee: '3' }, { id: ids[0]?.toUpperCase() }))).toEqual(
      counts(0, 0, 0, 1),
    )
    expect(await rows('select event_id from tickets order by event_id')).toEqual(
      ids.map((event_id) => ({ event_id })),
    )
    expect(await quarantine()).toMatchObject([{ event_id: ids[0], reason: 'same_id_other_bytes' }])
  })

  it("keeps the signer's stated cost exactly, and charges by the fee and the rate (K20)", async () => {
    const stated = [
      '0.750000000000000001',
      null,
      undefined,
      0.25,
      '-1',
      '1e3',
      '0.1234567890123456789',
    ]
    await ingest(
      ...stated.map((computed_fee_usd, sequence_number) =>
        alice({ computed_fee_usd, sequence_number }),
      ),
    )
    expect(
      await rows(
        'select trim_scale(stated_usd)::text as stated, cost_attos from tickets order by sequence_number',
      ),
    ).toEqual(
      stated.map((value) => ({
        stated: value === '0.750000000000000001' ? value : null,
        cost_attos: '360000000',
      })),
    )
  })

  it("keeps an event's emission time, to compare it with its signing time (K21)", async () => {
    await ingest(
      envelope({ auth_id: `${world.app.clientId}:alice` }, { timestamp: '1789380930131' }),
      envelope(
        { auth_id: `${world.app.clientId}:alice`, sequence_number: 1 },
        { timestamp: 'soon' },
      ),
    )
    expect(
      await rows(`select (extract(epoch from emitted_at) * 1000)::bigint as ms, emitted_at - signed_at < interval '8 ms' as soon
      from tickets order by sequence_number`),
    ).toEqual([
      { ms: 1789380930131n, soon: true },
      { ms: null, soon: null },
    ])
  })

  it('makes one ticket of an event, prices it from its own time, and charges its user (K1)', async () => {
    await recordRate(world.pool, '2026-09-14T10:15:30.123Z', 2000)
    await recordRate(world.pool, '2026-09-14T10:15:30.124Z', 9999)
    expect(await ingest(alice())).toEqual(counts(1))
    expect(
      await rows(`select fee_wei, cost_attos, session_id, sequence_number, billable_secs, replayed, pipeline, model_id,
      to_char(signed_at at time zone 'UTC', 'HH24:MI:SS.US') as signed from tickets`),
    ).toEqual([
      {
        fee_wei: '120000',
        cost_attos: '240000000',
        session_id: '9f86d081',
        sequence_number: 0n,
        billable_secs: '10',
        replayed: false,
        pipeline: 'live',
        model_id: 'unknown',
        signed: '10:15:30.123456',
      },
    ])
    expect(await rows('select consumed_attos, period_consumed_attos from balances')).toEqual([
      { consumed_attos: '240000000', period_consumed_attos: '240000000' },
    ])
    expect((await world.users.get(world.app.id, 'alice')).status).toBe('active')
  })

  it('accepts identical bytes once, in one batch and in the next (K2)', async () => {
    const event = alice()
    expect(await ingest(event, event)).toEqual(counts(1, 1))
    expect(await ingest(event)).toEqual(counts(0, 1))
    expect(await rows('select tickets, duplicates, next_offset from stream_offsets')).toEqual([
      { tickets: 1n, duplicates: 2n, next_offset: 3n },
    ])
  })

  it('quarantines other bytes with a known id and keeps the first unchanged (K3)', async () => {
    const first = alice({}, { id: 'e-1' })
    expect(await ingest(first, alice({ computed_fee: '1' }, { id: 'e-1' }))).toEqual(
      counts(1, 0, 0, 1),
    )
    expect(await ingest(alice({ computed_fee: '2' }, { id: 'e-1' }), first)).toEqual(
      counts(0, 1, 0, 1),
    )
    expect(await rows('select fee_wei from tickets')).toEqual([{ fee_wei: '120000' }])
    expect(await quarantine()).toMatchObject([
      { reason: 'same_id_other_bytes', fee_wei: '1' },
      { reason: 'same_id_other_bytes', fee_wei: '2' },
    ])
  })

  it('distinguishes ids that are not UUIDs or differ only in notation', async () => {
    const id = '0b1e7c52-9a4d-4f63-8e21-5d3c7a90bf14'
    const ids = [id, id.replaceAll('-', ''), `{${id}}`, 'e-1', 'E-1', 'é']
    const events = ids.map((text, sequence_number) => alice({ sequence_number }, { id: text }))
    expect(await ingest(...events)).toEqual(counts(6))
    expect(await ingest(...events)).toEqual(counts(0, 6))
  })

  it('distinguishes events with the same key', async () => {
    await world.pool.query(
      `insert into envelopes (key, digest) values (left(encode(sha256('e-1'), 'hex'), 32)::uuid, gen_random_uuid())`,
    )
    expect(await ingest(alice({}, { id: 'e-1' }))).toEqual(counts(0, 0, 0, 1))
    expect(await quarantine()).toMatchObject([
      { event_id: 'e-1', reason: 'same_id_other_bytes', fee_wei: '120000' },
    ])
    await world.pool.query('delete from envelopes')
  })

  it('keeps two events with one request_id (K4)', async () => {
    expect(await ingest(alice({ session_id: 'a' }), alice({ session_id: 'b' }))).toEqual(counts(2))
  })

  it('bills a replayed state and flags it, in one batch and across batches (K5)', async () => {
    expect(await ingest(alice(), alice({ current_time: '2026-09-14T10:15:31Z' }))).toEqual(
      counts(2),
    )
    expect(
      await ingest(alice({ current_time: '2026-09-14T10:15:32Z' }), alice({ sequence_number: 1 })),
    ).toEqual(counts(2))
    expect(
      await rows(
        'select sequence_number, replayed from tickets order by sequence_number, signed_at',
      ),
    ).toEqual([
      { sequence_number: 0n, replayed: false },
      { sequence_number: 0n, replayed: true },
      { sequence_number: 0n, replayed: true },
      { sequence_number: 1n, replayed: false },
    ])
  })

  it('quarantines an event without a known user, with its amount, and continues (K8, K10)', async () => {
    const unknown = `app_${'0'.repeat(24)}:alice`
    expect(
      await ingest(
        envelope({ auth_id: '' }),
        envelope({ auth_id: 'alice' }),
        envelope({ auth_id: unknown }),
        envelope({ auth_id: 'acme:alice' }),
        envelope({ auth_id: `${world.app.clientId}:\u0007` }),
        alice(),
      ),
    ).toEqual(counts(1, 0, 0, 5))
    expect(await quarantine()).toMatchObject(
      [
        { reason: 'invalid_subject', fee_wei: '120000' },
        { reason: 'unattributed', auth_id: '', fee_wei: '120000' },
        { reason: 'unknown_client' },
        { reason: 'unknown_client' },
        { reason: 'unknown_client' },
      ].toSorted((a, b) => a.reason.localeCompare(b.reason)),
    )
  })

  it('splits a subject with colons at the first (K9)', async () => {
    await ingest(alice({ auth_id: `${world.app.clientId}:user:42` }))
    expect(await rows('select external_user_id from end_users')).toEqual([
      { external_user_id: 'user:42' },
    ])
  })

  it('keeps fees exact beyond 2^53, and accepts zero (K11, K12)', async () => {
    expect(
      await ingest(
        alice({ computed_fee: '9007199254740993' }),
        alice({ computed_fee: '0', sequence_number: 1 }),
      ),
    ).toEqual(counts(2))
    expect(await rows('select fee_wei, cost_attos from tickets order by fee_wei')).toEqual([
      { fee_wei: '0', cost_attos: '0' },
      { fee_wei: '9007199254740993', cost_attos: '27021597764222979000' },
    ])
  })

  it('quarantines malformed fees (K13)', async () => {
    const fees = ['-1', '1.5', '1e3', undefined, null]
    expect(await ingest(...fees.map((computed_fee) => alice({ computed_fee })))).toEqual(
      counts(0, 0, 0, 5),
    )
    expect(await rows('select distinct reason from quarantine')).toEqual([
      { reason: 'invalid_fee' },
    ])
  })

  it('keeps billable seconds as decimals, including negative ones (K14)', async () => {
    const seconds = [60, 5.123456789, -0.0015, 1e-9, 0]
    await ingest(
      ...seconds.map((billable_secs, sequence_number) => alice({ billable_secs, sequence_number })),
    )
    expect(
      (await rows('select billable_secs from tickets order by sequence_number')).map(
        (row) => row['billable_secs'],
      ),
    ).toEqual(['60', '5.123456789', '-0.0015', '0.000000001', '0'])
    expect(await rows('select billable_secs from usage_hourly')).toEqual([
      { billable_secs: '65.12195679' },
    ])
  })

  it('ignores other types and counts them (K15, K16)', async () => {
    expect(
      await ingest(
        alice({}, { type: 'create_new_payment' }),
        envelope({}, { type: 'discovery_results', data: [1] }),
        envelope({}, { type: 'x', data: null }),
      ),
    ).toEqual(counts(0, 0, 3))
  })

  it('quarantines unreadable bytes unchanged, once despite repeats (K17)', async () => {
    const huge = Buffer.alloc(1024 * 1024 + 5, 0x41)
    const bad = [
      Buffer.from('not json \u0000'),
      Buffer.from('{"type":"create_signed_ticket","data":{}}'),
      huge,
    ]
    expect(await ingest(...bad, ...bad, alice())).toEqual(counts(1, 0, 0, 6))
    expect(await ingest(...bad)).toEqual(counts(0, 0, 0, 3))
    expect(
      await rows(
        'select reason, deliveries, byte_count, length(bytes) as kept from quarantine order by reason',
      ),
    ).toEqual([
      { reason: 'no_id', deliveries: 3n, byte_count: 41, kept: 41 },
      { reason: 'not_json', deliveries: 3n, byte_count: 10, kept: 10 },
      { reason: 'too_large', deliveries: 3n, byte_count: 1024 * 1024 + 5, kept: 1024 * 1024 },
    ])
    expect(await rows('select quarantined, next_offset from stream_offsets')).toEqual([
      { quarantined: 9n, next_offset: 10n },
    ])
  })

  it('accepts older events and splits base:model (K18, K19)', async () => {
    await ingest(
      alice({ app: undefined, cost: undefined, cost_per_pixel: '1.0' }),
      alice({ sequence_number: 1, pipeline: 'live-video-to-video:streamdiffusion' }),
    )
    expect(
      await rows('select pipeline, model_id, ticket_count from usage_hourly order by pipeline'),
    ).toEqual([
      { pipeline: 'live', model_id: 'unknown', ticket_count: 1n },
      { pipeline: 'live-video-to-video', model_id: 'streamdiffusion', ticket_count: 1n },
    ])
  })

  it('sums the same in any order of arrival (K7)', async () => {
    const events = [0, 1, 2, 3].map((n) =>
      alice({
        sequence_number: n,
        computed_fee: String(10 ** n),
        current_time: `2026-09-14T10:1${5 + n}:00Z`,
      }),
    )
    for (const i of [1, 0, 2, 3]) await ingest(...events.slice(i, i + 1))
    expect(await rows('select ticket_count, fee_wei from usage_hourly')).toEqual([
      { ticket_count: 4n, fee_wei: '1111' },
    ])
  })

  it('writes each ticket to the partition of its month, since 2020', async () => {
    const times = ['2020-01-01T00:00:00Z', '2024-02-29T23:59:59.999999Z', '2026-09-15T10:00:00Z']
    expect(await ingest(...times.map((current_time) => alice({ current_time })))).toEqual(counts(3))
    expect(
      (await rows(`select distinct tableoid::regclass::text as part from tickets`))
        .map((row) => row['part'])
        .toSorted(),
    ).toEqual(['tickets_2020_01', 'tickets_2024_02', 'tickets_2026_09'])
  })

  it('publishes users with no balance left, after the commit', async () => {
    await ingest(alice({ computed_fee: '1' }))
    expect(world.published).toEqual([])
    await ingest(alice({ computed_fee: String(10n ** 18n), sequence_number: 1 }))
    const { id } = await world.users.get(world.app.id, 'alice')
    expect(world.published).toEqual([`access ${id}`])
  })

  it('refuses to rewrite or delete a ticket', async () => {
    await ingest(alice())
    await expect(world.pool.query('update tickets set cost_attos = 0')).rejects.toThrow(
      'priced once',
    )
    await expect(world.pool.query('delete from tickets')).rejects.toThrow('priced once')
  })

  it('counts its outcomes as metrics', async () => {
    const metering = world.metering()
    await metering.ingestEvents([alice(), alice({ auth_id: '' })])
    expect(await world.metric('tollgate_metering_events_total')).toContain(
      'tollgate_metering_events_total{outcome="ticket",process="test"} 1',
    )
    expect(await world.metric('tollgate_metering_quarantine')).toEqual(
      expect.arrayContaining([
        'tollgate_metering_quarantine_open{reason="unattributed",process="test"} 1',
        'tollgate_metering_quarantined_total{reason="unattributed",process="test"} 1',
      ]),
    )
    const { streams, quarantined, unpriced } = await metering.status()
    expect([streams, quarantined, unpriced]).toEqual([
      [
        {
          source: 'direct',
          partition: 0,
          nextOffset: 2n,
          tickets: 1n,
          duplicates: 0n,
          ignored: 0n,
          quarantined: 1n,
          newestAt: expect.any(Date),
          bookedAt: expect.any(Date),
          end: null,
          lag: null,
        },
      ],
      1n,
      0n,
    ])
  })
})
