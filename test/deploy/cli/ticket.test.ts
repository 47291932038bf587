import { beforeAll, describe, expect, it } from 'vitest'
import { envelope } from '../../core/metering/harness.ts'
import { app, core, setUpCli, tollgate } from './support.ts'

const eventId = '6a0f2e64-4c3e-4d0e-9b1b-1f5f5a4b8a10'
setUpCli()
beforeAll(async () => {
  const signed = {
    auth_id: `${app.clientId}:ada`,
    computed_fee: '8420000000000',
    current_time: core.clock.now().toISOString(),
  }
  await core.as().ingestEvents({ envelopes: [envelope(signed, { id: eventId })] })
})

const ticket = (...argv: string[]) => tollgate('ticket', ...argv)

describe('tollgate ticket', () => {
  it('shows the ticket and the sums', async () => {
    const { code, text } = await ticket(eventId)
    expect(code).toBe(0)
    expect(text).toContain('Starter, version 1, terms ')
    expect(text).toContain('pass_through, 0.000001 USD per micro')
    expect(text).toMatch(/ticket burned +0\.02526 USD of included/)
    expect(text).toContain(
      'retail = 0.00000842 ETH × 3000 USD/ETH × 1 (pass_through) = 0.02526 USD\n',
    )
  })

  it('prints one JSON document of the given app', async () => {
    const { code, text } = await ticket(eventId, '--app', app.clientId, '--json')
    expect(code).toBe(0)
    expect(JSON.parse(text)).toMatchObject({ eventId, clientId: app.clientId, sale: {} })
  })

  it('refuses other apps, unknown ids and a missing id', async () => {
    const other = await core.newApp()
    expect((await ticket(eventId, '--app', other.clientId)).code).toBe(1)
    expect((await ticket(eventId, '--app', 'app_000000000000000000000000')).text).toContain(
      'no such app',
    )
    expect((await ticket('no-such-event')).text).toContain('no ticket has this event id')
    expect((await ticket()).code).toBe(2)
  })
})
