import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { allow, startDouble, startWebhook } from './support.ts'

const OK = '{"status":200,"auth_id":"acme:alice"}'

describe('the connection to the webhook', () => {
  it('is reused by sequential calls, and two remain after a burst', async () => {
    const webhook = await startWebhook()
    const double = await startDouble({ webhook: { url: webhook.url }, ev: 10n ** 11n })
    for (let i = 0; i < 3; i += 1) await double.pay({ type: 'fixed' })
    expect(new Set(webhook.calls.map(({ connection }) => connection)).size).toBe(1)

    const waiting: (() => void)[] = []
    webhook.script = (call, response) => {
      waiting.push(() => allow(call, response))
      if (waiting.length === 10) for (const reply of waiting.splice(0)) reply()
    }
    const burst = (): Promise<unknown> =>
      Promise.all(Array.from({ length: 10 }, () => double.pay({ type: 'fixed' })))
    await burst()
    const first = new Set(webhook.calls.slice(3).map(({ connection }) => connection))
    await burst()
    const second = new Set(webhook.calls.slice(13).map(({ connection }) => connection))
    expect(first.size).toBe(10)
    expect([...second].filter((connection) => first.has(connection))).toHaveLength(2)
  })

  it('decodes gzip and refuses broken gzip', async () => {
    const webhook = await startWebhook((_call, response) => {
      response.writeHead(200, { 'Content-Encoding': 'gzip' })
      response.end(gzipSync(OK))
    })
    const double = await startDouble({ webhook: { url: webhook.url }, ev: 10n ** 11n })
    expect((await double.pay({ type: 'fixed' })).status).toBe(200)
    webhook.script = (_call, response) => {
      response.writeHead(200, { 'Content-Encoding': 'gzip' })
      response.end(OK)
    }
    expect((await double.pay({ type: 'fixed' })).status).toBe(500)
  })

  it('is aborted when the gateway hangs up, without a ticket', async () => {
    const closed = Promise.withResolvers<void>()
    const arrived = Promise.withResolvers<void>()
    const webhook = await startWebhook((_call, response) => {
      response.once('close', closed.resolve)
      arrived.resolve()
    })
    const double = await startDouble({ webhook: { url: webhook.url }, ev: 10n ** 11n })
    const hangUp = new AbortController()
    const call = double.pay({ type: 'fixed', signal: hangUp.signal })
    await arrived.promise
    hangUp.abort()
    await expect(call).rejects.toThrow('aborted')
    await closed.promise
    await double.flush()
    expect(double.stats().signed.tickets).toBe(0)
    expect(webhook.calls).toHaveLength(1)
  })
})
