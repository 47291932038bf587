import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { connectCore } from '../../../../deploy/cli/client.ts'
import { atOnce, begin, outcome, serviceToken } from '../../support.ts'
import { type BooksWorld, type Event, eventOf, startBooks, tollgate } from '../../books/support.ts'

let world: BooksWorld
let core: ReturnType<typeof connectCore>
beforeAll(async () => {
  world = await startBooks()
  core = connectCore({ target: world.core.target, token: serviceToken })
})
afterAll(async () => {
  core.close()
  await world.stop()
})
beforeEach(() => world.damage('delete from quarantine'))

const fee = '1000000000000000'
const list = async (...more: string[]) =>
  JSON.parse((await tollgate('quarantine', 'list', '--json', ...more)).text)
const ids = async (...more: string[]): Promise<string[]> =>
  (await list(...more)).events.map((event: { id: string }) => event.id)
const tickets = () =>
  world.rows(
    'select event_id, user_id, fee_wei, cost_attos from tickets order by received_at, event_id',
  )
const run = (...argv: string[]) => tollgate('quarantine', ...argv)

/** Ingests events and returns the id of the only one in quarantine. */
async function quarantined(...events: readonly Event[]): Promise<string> {
  await world.ingest(...events)
  const [id = '', ...others] = await ids()
  expect(others).toEqual([])
  return id
}

describe('tollgate quarantine', () => {
  it('lists waiting events, filtered and paged, with the amounts by reason', async () => {
    await world.ingest(
      { auth_id: '', computed_fee: '11' },
      { auth_id: '', computed_fee: '22' },
      { auth_id: 'acme:zoe', computed_fee: '5' },
    )
    await world.ingestBytes(Buffer.from('{'), Buffer.from('{'))
    const all = await list()
    expect(all.waiting).toEqual([
      { reason: 'not_json', events: '1', feeWei: '0' },
      { reason: 'unattributed', events: '2', feeWei: '33' },
      { reason: 'unknown_client', events: '1', feeWei: '5' },
    ])
    expect(all.events).toHaveLength(4)
    expect((await list('--reason', 'not_json')).events).toMatchObject([
      { status: 'open', deliveries: '2', byteCount: 1 },
    ])
    expect((await list('--auth-id', 'acme:zoe')).events).toMatchObject([
      { feeWei: '5', reason: 'unknown_client' },
    ])
    expect(await ids('--to', new Date(begin.getTime() - 1).toISOString())).toEqual([])
    const first = await list('--limit', '3')
    expect(await ids('--limit', '3', '--cursor', first.nextCursor)).toEqual([all.events[3].id])
    expect((await run('list')).text).toMatch(
      /^id +received +status +reason +auth_id +wei +deliveries\n[^]*\nwaits for a decision +events +wei\n[^]*unattributed +2 +33\n/,
    )
  })

  it('shows the original bytes', async () => {
    const bytes = eventOf({ auth_id: '', computed_fee: '12' })
    await world.ingestBytes(bytes)
    const [id = ''] = await ids()
    const { text } = await run('show', id)
    expect(text).toContain(bytes.toString())
    expect(
      Buffer.from(JSON.parse((await run('show', id, '--json')).text).bytesBase64, 'base64'),
    ).toEqual(bytes)
    expect(await run('show', '00000000-0000-4000-8000-000000000000')).toEqual({
      code: 1,
      text: 'tollgate: no such event in quarantine\n',
    })
  })

  it('attributes an event without a user to one, who pays once', async () => {
    const event = { id: 'nameless', auth_id: '', computed_fee: fee }
    const id = await quarantined(event)
    expect(
      (
        await run(
          'attribute',
          id,
          '--app',
          world.app.clientId,
          '--user',
          'zoe',
          '--author',
          'grace',
        )
      ).text,
    ).toBe(`${id}  redriven: became a ticket, ticket nameless\n`)
    expect(await tickets()).toMatchObject([
      { event_id: 'nameless', fee_wei: fee, cost_attos: '3000000000000000000' },
    ])
    const { balance } = await world
      .as(world.app.basic)
      .getBalance({ clientId: world.app.clientId, externalUserId: 'zoe' })
    expect(balance?.balanceUsdMicros).toBe('2000000')
    expect(
      await world.rows(
        `select actor, action, details ->> 'eventId' as event from audit_log where action like 'quarantine%'`,
      ),
    ).toEqual([{ actor: 'operator:grace', action: 'quarantine_attributed', event: 'nameless' }])
    expect((await list('--status', 'redriven')).events).toMatchObject([
      {
        id,
        attributedTo: `${world.app.clientId}:zoe`,
        ticketEventId: 'nameless',
        resolvedBy: 'grace',
        authId: '',
      },
    ])
    // The same bytes, delivered again, change nothing: the decision stays and the user pays no
    // more.
    expect(await world.ingest(event)).toMatchObject({ tickets: 0, quarantined: 1 })
    expect(await ids()).toEqual([])
    expect((await run('attribute', id, '--app', world.app.clientId, '--user', 'zoe')).text).toBe(
      'tollgate: this event is already redriven\n',
    )
    expect(await tickets()).toHaveLength(1)
  })

  it('explains why an event cannot be attributed to a user', async () => {
    const id = await quarantined({ auth_id: '', computed_fee: '1' })
    expect(
      (await run('attribute', id, '--app', `app_${'0'.repeat(24)}`, '--user', 'zoe')).text,
    ).toContain('no app has the client id')
    expect((await run('attribute', id, '--app', 'm2m_x', '--user', 'zoe')).text).toContain(
      'no app has this client id',
    )
    expect(
      (await run('attribute', id, '--app', world.app.clientId, '--user', 'a\u0001')).text,
    ).toContain('must not contain control characters')
    expect(
      (await run('attribute', id, '--app', world.app.clientId, '--user', 'owner:x')).text,
    ).toContain('must not start with owner:')
    expect((await run('attribute', id, '--app', world.app.clientId)).code).toBe(2)
    await world.damage('delete from quarantine')
    const broken = await quarantined({ auth_id: '', computed_fee: '-1' })
    expect(
      (await run('attribute', broken, '--app', world.app.clientId, '--user', 'zoe')).text,
    ).toContain(
      'only events without a known user can be assigned to a user; this one is invalid_fee',
    )
    expect((await run('redrive', broken)).text).toContain(
      'the event is still not a ticket: invalid_fee',
    )
    expect(await ids()).toEqual([broken])
  })

  it('redrives events that are now valid, all of one reason at once', async () => {
    const later = new Date(begin.getTime() + 2 * 86_400_000).toISOString()
    await world.ingest(
      {
        id: 'early-1',
        auth_id: `${world.app.clientId}:eve`,
        computed_fee: '1',
        current_time: later,
      },
      {
        id: 'early-2',
        auth_id: `${world.app.clientId}:eve`,
        computed_fee: '2',
        current_time: later,
        sequence_number: 1,
      },
    )
    expect(await run('redrive', '--reason', 'time_out_of_range')).toEqual({
      code: 1,
      text: expect.stringContaining('0 ingested, 2 stay in quarantine'),
    })
    world.clock.set(new Date(begin.getTime() + 1.5 * 86_400_000))
    expect(await run('redrive', '--reason', 'time_out_of_range')).toEqual({
      code: 0,
      text: '2 ingested, 0 stay in quarantine\n',
    })
    expect(
      await world.rows(
        `select event_id from tickets where event_id like 'early%' order by event_id`,
      ),
    ).toEqual([{ event_id: 'early-1' }, { event_id: 'early-2' }])
    // The redriven events are duplicates when delivered again.
    expect(
      await world.ingest({
        id: 'early-1',
        auth_id: `${world.app.clientId}:eve`,
        computed_fee: '1',
        current_time: later,
      }),
    ).toMatchObject({ duplicates: 1 })
    world.clock.set(begin)
  })

  it('closes an event that had become a ticket by itself', async () => {
    const clientId = `app_${'e'.repeat(24)}`
    const event = { id: 'both', auth_id: `${clientId}:zoe`, computed_fee: '4' }
    const id = await quarantined(event)
    expect((await run('redrive', id)).text).toContain(
      `no app has the client id that the event names, ${clientId}:zoe; assign the event to a user`,
    )
    const other = await world.newApp()
    await world.damage(
      `update clients set client_id = '${clientId}' where client_id = '${other.clientId}'`,
    )
    expect(await world.ingest(event)).toMatchObject({ tickets: 1 })
    expect((await run('redrive', id)).text).toBe(
      `${id}  redriven: had become a ticket by itself, ticket both\n`,
    )
    expect(await world.rows(`select count(*) from tickets where event_id = 'both'`)).toEqual([
      { count: '1' },
    ])
  })

  it("redrives an event with another event's id under a new id, and only on request", async () => {
    await world.ingest({ id: 'twin', computed_fee: '10' })
    const id = await quarantined({ id: 'twin', computed_fee: '20' })
    expect((await run('redrive', id)).text).toContain(
      'another event has this id; this event can become a separate ticket only under a new id',
    )
    expect((await run('redrive', id, '--under-new-id')).text).toMatch(
      /redriven: became a ticket, ticket redriven:[0-9a-f]{64}/,
    )
    expect(
      await world.rows(
        `select fee_wei from tickets where event_id = 'twin' or event_id like 'redriven:%' order by fee_wei`,
      ),
    ).toEqual([{ fee_wei: '10' }, { fee_wei: '20' }])
    await world.damage('delete from quarantine')
    const other = await quarantined({ auth_id: '', computed_fee: '20' })
    expect((await run('redrive', other, '--under-new-id')).text).toContain(
      'only an event whose id belongs to another event can get a new id',
    )
  })

  it('redrives an event once if many calls compete', async () => {
    const id = await quarantined({ id: 'contested', auth_id: '', computed_fee: '3' })
    const outcomes = await atOnce(12, (i) =>
      outcome(
        i % 3 === 0
          ? core.quarantine.discardQuarantined({ id, author: 'b', reason: 'nobody’s' })
          : core.quarantine.attributeQuarantined({
              id,
              clientId: world.app.clientId,
              externalUserId: `racer-${i % 2}`,
              author: 'a',
            }),
      ),
    )
    expect(outcomes.filter((one) => one === 'OK')).toHaveLength(1)
    expect(new Set(outcomes)).toEqual(new Set(['OK', 'CONFLICT']))
    const { status } = (await core.quarantine.getQuarantined({ id })).event ?? {}
    const made = await world.rows(`select count(*) from tickets where event_id = 'contested'`)
    expect(made).toEqual([{ count: status === 'redriven' ? '1' : '0' }])
  })

  it('discards for a reason, and keeps the bytes', async () => {
    const id = await quarantined({ auth_id: '', computed_fee: '9' })
    expect((await run('discard', id)).code).toBe(2)
    expect((await run('discard', id, '--reason', ' ')).text).toContain(
      'reason must have 1 to 500 characters',
    )
    expect((await run('discard', id, '--reason', 'a\u202eb')).text).toContain(
      'reason contains a bidirectional formatting character (U+202E)',
    )
    expect(
      (await run('discard', id, '--reason', 'a test of the signer', '--author', 'grace')).text,
    ).toBe(`${id}  discarded: a test of the signer\n`)
    expect((await run('redrive', id)).text).toContain('this event is already discarded')
    expect((await core.quarantine.getQuarantined({ id })).bytes.length).toBeGreaterThan(100)
    expect((await list()).waiting).toEqual([])
  })

  it('rejects an event with only its beginning stored', async () => {
    await world.ingestBytes(Buffer.alloc(1024 * 1024 + 1, 0x20))
    const [id = ''] = await ids()
    expect((await run('redrive', id)).text).toContain('only the beginning of the event was kept')
  })

  it('validates its arguments', async () => {
    expect((await run()).code).toBe(2)
    expect((await run('redrive', 'x', '--reason', 'no_id')).code).toBe(2)
    expect((await run('list', '--limit', '0')).code).toBe(2)
    expect((await run('list', '--reason', 'bored')).text).toContain('reason must be one of')
    expect((await run('list', '--status', 'gone')).text).toContain('status must be one of')
    expect((await run('list', '--from', 'yesterday')).text).toContain(
      'from must be an ISO 8601 instant',
    )
    expect((await run('--help')).text).toContain('tollgate quarantine attribute ID')
  })

  it('leaves books that verify', async () => {
    await tollgate('rebuild')
    expect((await tollgate('verify')).text).toContain('the books are right')
  })
})
