import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { MeteringServiceClient } from '../../../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { serviceTokenHeader } from '../../../../proto/headers.ts'
import { credentials } from '@grpc/grpc-js'
import { unary } from '../../../../core/lib/grpc.ts'
import { type Event, eventOf } from '../../../core/books/support.ts'
import { type TestApp, serviceToken } from '../../../core/support.ts'
import { type Person, logIn } from '../../../support/web/people.ts'
import { type Console, startConsole } from '../../console.ts'

let console: Console
let metering: MeteringServiceClient
let app: TestApp
let admin: Person
beforeAll(async () => {
  console = await startConsole()
  metering = new MeteringServiceClient(console.core.target, credentials.createInsecure())
  app = await console.newApp()
  admin = await logIn(console, { isPlatformAdmin: true })
})
afterAll(async () => {
  metering?.close()
  await console?.stop()
})
beforeEach(() => console.sql.query('delete from quarantine; delete from audit_log'))

const ingest = (...events: readonly Event[]) =>
  unary(metering.ingestEvents.bind(metering))(
    { envelopes: events.map(eventOf) },
    { deadlineMs: 15_000, headers: { [serviceTokenHeader]: serviceToken } },
  )

async function ask(method: string, path: string, json?: object) {
  const url = `/api/v1/internal/operate/quarantine${path}`
  const answer = await console.send(method, url, { person: admin, ...(json && { json }) })
  return { status: answer.status, body: JSON.parse(await answer.text()) }
}

/** Puts one event into quarantine and returns its id. */
async function quarantined(event: Event): Promise<string> {
  await ingest(event)
  return (await ask('GET', '')).body.events[0].id
}

const entries = async () =>
  (
    await console.sql.query<{ action: string; actor: string }>(
      'select action, actor from audit_log order by action',
    )
  ).rows

describe('quarantine, for platform admins', () => {
  it('lists events by reason and state, page by page, with the money that waits', async () => {
    await ingest(
      { auth_id: '', computed_fee: '11' },
      { auth_id: '', computed_fee: '22' },
      { auth_id: 'acme:zoe', computed_fee: '5' },
    )
    const { body } = await ask('GET', '?limit=1&reason=unattributed')
    expect(body.waiting).toEqual([
      { reason: 'unattributed', events: '2', feeWei: '33' },
      { reason: 'unknown_client', events: '1', feeWei: '5' },
    ])
    expect(body.events).toMatchObject([{ status: 'open', reason: 'unattributed' }])
    const next = await ask('GET', `?limit=1&reason=unattributed&cursor=${body.nextCursor}`)
    // Both arrived at the same instant, so either may be the first.
    const fees = [...body.events, ...next.body.events].map(({ feeWei }) => feeWei)
    expect(fees.toSorted()).toEqual(['11', '22'])
    expect(next.body.nextCursor).toBeUndefined()
    expect((await ask('GET', '?status=discarded')).body.events).toEqual([])
  })

  it('shows the beginning of an event as text', async () => {
    const id = await quarantined({ id: 'long', auth_id: '', orch_url: 'x'.repeat(20_000) })
    const { body } = await ask('GET', `/${id}`)
    expect(body).toMatchObject({ eventId: 'long', isComplete: false })
    expect(body.sample).toContain('"long"')
    expect(body.sample).toHaveLength(16_384)
  })

  it('assigns an event to a user, in the name of the platform admin', async () => {
    const id = await quarantined({ id: 'nameless', auth_id: '', computed_fee: '3' })
    const user = { clientId: app.clientId, externalUserId: 'zoe' }
    const { status, body } = await ask('POST', `/${id}/attribute`, user)
    expect(status).toBe(200)
    expect(body).toMatchObject({
      status: 'redriven',
      attributedTo: `${app.clientId}:zoe`,
      resolvedBy: admin.email,
      ticketEventId: 'nameless',
    })
    expect(await entries()).toContainEqual({
      action: 'quarantine_attributed',
      actor: admin.accountId,
    })
    expect((await ask('POST', `/${id}/redrive`, {})).status).toBe(409)
  })

  it('discards an event for a reason', async () => {
    const id = await quarantined({ auth_id: '', computed_fee: '3' })
    expect((await ask('POST', `/${id}/discard`, { reason: ' ' })).status).toBe(400)
    const { body } = await ask('POST', `/${id}/discard`, { reason: 'a test' })
    expect(body).toMatchObject({ status: 'discarded', resolution: 'a test' })
    expect(await entries()).toEqual([
      { action: 'operator_command', actor: admin.accountId },
      { action: 'quarantine_discarded', actor: admin.accountId },
    ])
  })

  it('redrives all events with a reason, and reports why others stay', async () => {
    const [later, never] = [2, 9].map((days) =>
      new Date(console.clock.now().getTime() + days * 86_400_000).toISOString(),
    )
    const auth_id = `${app.clientId}:eve`
    await ingest(
      { id: 'early-1', auth_id, current_time: later },
      { id: 'early-2', auth_id, current_time: later, sequence_number: 1 },
      { id: 'early-3', auth_id, current_time: never, sequence_number: 2 },
    )
    const again = () => ask('POST', '/redrive', { reason: 'time_out_of_range' })
    expect((await again()).body).toMatchObject({ redriven: 0, left: { length: 3 } })
    console.clock.set(new Date(console.clock.now().getTime() + 1.5 * 86_400_000))
    const { body } = await again()
    expect(body.redriven).toBe(2)
    expect(body.left).toEqual([
      { id: expect.any(String), problem: expect.stringContaining('time_out_of_range') },
    ])
    expect(body.nextCursor).toBeUndefined()
    expect((await ask('POST', '/redrive', { reason: 'bored' })).status).toBe(400)
    expect((await ask('POST', '/redrive', {})).status).toBe(400)
  })
})
