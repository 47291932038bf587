import { randomUUID } from 'node:crypto'
import { beforeAll, expect, it } from 'vitest'
import { envelope } from '../../core/metering/harness.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { core, operate, setUpCli, tollgate } from './support.ts'

let trial: string
setUpCli()
beforeAll(async () => {
  const { text } = await operate('app', 'create', '--name', 'Trial', '--test')
  trial = /clientId +(\S+)/.exec(text)?.[1] ?? ''
  registerSecret(/m2mClientSecret +(\S+)/.exec(text)?.[1] ?? '')
})

const clock = (action: string, app: string, ...argv: string[]) =>
  operate('test-clock', action, '--app', app, ...argv)

it('advances the clock of a test app, and shows it', async () => {
  const { code, text } = await clock('advance', trial, '--seconds', '86400')
  expect(code).toBe(0)
  expect(text).toContain(`${trial}: 2026-03-10T12:00:00.250Z -> 2026-03-11T12:00:00.250Z\n`)
  expect(text).toMatch(/credits expired +0 with 0\.00 USD left\n/)
  const later = await clock('advance', trial, '--to', '2026-03-20T00:00:00Z', '--json')
  expect(JSON.parse(later.text)).toMatchObject({ to: '2026-03-20T00:00:00.000Z', pending: false })
  expect((await clock('show', trial)).text).toMatch(
    /clock +2026-03-20T00:00:00\.\d{3}Z\nreal time +2026-03-10T12:00:00\.250Z\n/,
  )
})

it('appears in the explanation of a ticket that was signed with it', async () => {
  const id = randomUUID()
  // Sign after the moves, which only affect later instants.
  core.clock.advance(1_000)
  const current_time = core.clock.now().toISOString()
  const signed = envelope({ auth_id: `${trial}:ada`, current_time }, { id })
  await core.as().ingestEvents({ envelopes: [signed] })
  // Nine and a half days.
  expect((await tollgate('ticket', id)).text).toMatch(/test clock +8\d{8} ms ahead of the signer\n/)
})

it.each([
  [[], 2, 'needs either --to or --seconds'],
  [['--seconds', '5', '--to', '2026-04-01T00:00:00Z'], 2, 'needs either --to or --seconds'],
  [['--seconds', 'a'], 2, 'a whole number from 1'],
  [['--to', '2020-01-01T00:00:00Z'], 1, 'a clock only moves forward'],
])('refuses to advance by %j', async (argv, code, message) => {
  expect(await clock('advance', trial, ...argv)).toEqual({
    code,
    text: expect.stringContaining(message),
  })
})

it('explains how to create an app with a clock', async () => {
  const { clientId } = await core.newApp()
  const { code, text } = await clock('show', clientId)
  expect({ code, text }).toEqual({ code: 1, text: expect.stringContaining('or --test') })
})
