import { beforeAll, expect, it } from 'vitest'
import type { TestApp } from '../../core/support.ts'
import { type Receiver, startReceiver } from '../../core/webhooks/receiver.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { until } from '../../support/waiting.ts'
import { operate, startCli } from './support.ts'

let app: TestApp
let receiver: Receiver
beforeAll(async () => {
  receiver = await startReceiver()
  const cli = await startCli({ OUTBOUND_ALLOW: '127.0.0.1' })
  ;({ app } = cli)
  return async () => {
    await cli.stop()
    receiver.stop()
  }
})

const run = (line: string) => operate('webhook-endpoint', ...line.split(' '), '--app', app.clientId)

it('creates, lists, changes, pings, rotates, replays and deletes an endpoint', async () => {
  expect((await run('list')).text).toBe('the app has no webhook endpoint\n')
  const created = await run(`create ${receiver.url} --event user.created --event key.created`)
  const secret = registerSecret(
    /^secret \(shown once\): (whsec_\S+)$/m.exec(created.text)?.[1] ?? '',
  )
  expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/)
  const listed = await run('list')
  expect(listed.text).toMatch(/user\.created key\.created +active +hmac/)
  expect(listed.text).not.toContain(secret)
  const [id = ''] = /[0-9a-f-]{36}/.exec(listed.text) ?? []

  expect((await run(`update ${id} --all-events --description shop`)).text).toContain(' all ')
  expect((await run(`update ${id} --disable`)).text).toContain('disabled: requested')
  expect((await run(`ping ${id}`)).text).toContain('is disabled; activate it first')
  expect((await run(`update ${id} --enable`)).text).toMatch(/active/)

  expect((await run(`ping ${id}`)).text).toMatch(/^queued: evt_[0-9a-f]{32}\n/)
  await until(() => receiver.received.length === 1)
  await until(async () => (await run(`deliveries ${id}`)).text.includes('delivered'))
  const log = await run(`deliveries ${id} --status delivered`)
  expect(log.text).toMatch(/webhook\.ping +delivered +1 +204/)
  const [delivery = ''] = /^[0-9a-f-]{36}/m.exec(log.text) ?? []
  expect((await run(`replay ${id} --delivery ${delivery}`)).text).toBe('queued again: 1\n')
  await until(() => receiver.received.length === 2)
  expect((await run(`replay ${id} --failed-since 2026-01-01`)).text).toBe('queued again: 0\n')

  const rotated = await run(`rotate ${id} --signing ed25519 --overlap-seconds 0`)
  expect(rotated.text).toMatch(/^public key: whpk_[A-Za-z0-9+/]{43}=\n$/)
  expect((await run(`delete ${id}`)).text).toBe(`${id} is deleted\n`)
  expect((await run('list')).text).toBe('the app has no webhook endpoint\n')
})

it('reports wrong usage and refused addresses', async () => {
  expect((await run('create')).text).toContain('needs one URL')
  expect((await run('replay x')).text).toContain('needs either --delivery or --failed-since')
  expect((await run('create http://example.com')).text).toContain('must be an https URL')
  expect((await run('deliveries x')).text).toContain('the app has no such webhook endpoint')
})
