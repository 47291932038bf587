import { Agent, createServer } from 'node:http'
import { connect } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { listen } from '../../../core/lib/http.ts'
import { firstCall } from '../signer-bodies.ts'
import { secret, send, startHarness, until, withoutDecision } from '../support.ts'

const caller = { authorization: `Bearer ${secret}` }

/** The webhook vectors of docs/signer-protocol.md, by number. */
describe('the listener', () => {
  it('31: decides with a large body, and refuses a huge one without reading it completely', async () => {
    const { authorize, sidecar } = await startHarness()
    const fat = (bytes: number) => firstCall({ headers: { Cookie: ['c'.repeat(bytes)] } })
    expect((await authorize(fat(200 * 1024))).json['status']).toBe(200)
    const huge = await authorize(fat(3 * 1024 * 1024))
    expect(huge.transport).toBe(200)
    expect(huge.json['status']).toBe(431)
    const endless = new ReadableStream({
      pull: (controller) => controller.enqueue(Buffer.alloc(65_536, ' ')),
    })
    const init = { method: 'POST', headers: caller, body: endless, duplex: 'half' as const }
    const chunked = await fetch(`${sidecar.url}/authorize`, init)
    expect(await chunked.json()).toMatchObject({ status: 431 })
  })

  it('32: accepts odd header names, replacement characters and escapes', async () => {
    const { authorize } = await startHarness()
    const odd = JSON.stringify(
      firstCall({ headers: { X_under: ['\uFFFD'], 'X-Html': ['<&>'] } }),
    ).replace('<', '\\u003c')
    expect((await authorize(odd)).json['status']).toBe(200)
    const proto = JSON.stringify(firstCall()).replace('"Accept"', '"__proto__"')
    expect((await authorize(proto)).json['status']).toBe(200)
  })

  it('36: survives callers that hang up', async () => {
    const { sidecar, authorize, core } = await startHarness()
    core.script.delayMs = 50
    await Promise.all(
      Array.from({ length: 20 }, () =>
        fetch(`${sidecar.url}/authorize`, {
          method: 'POST',
          headers: caller,
          body: JSON.stringify(firstCall()),
          signal: AbortSignal.timeout(10),
        }).catch(() => null),
      ),
    )
    expect((await authorize(firstCall())).json['status']).toBe(200)
  })

  it('accepts bodies in any pieces, and answers pipelined requests in order', async () => {
    const { sidecar } = await startHarness()
    const bodies = ['{"authorization":"svc_ak_unknown"}', JSON.stringify(firstCall()), '{', '{}']
    const bytes = bodies
      .map(
        (body) =>
          `POST /authorize HTTP/1.1\r\nHost: sidecar\r\nAuthorization: Bearer ${secret}\r\n` +
          `Content-Length: ${body.length}\r\n\r\n${body}`,
      )
      .join('')
    for (const size of [bytes.length, 700, 64, 1]) {
      const socket = connect(sidecar.port, '127.0.0.1')
      socket.setNoDelay(true)
      let answers = ''
      socket.setEncoding('utf8').on('data', (text: string) => (answers += text))
      for (let at = 0; at < bytes.length; at += size) {
        socket.write(bytes.slice(at, at + size))
        if (size > 1 || at % 50 === 0) await new Promise((resolve) => setImmediate(resolve))
      }
      await until(
        () => answers.split('HTTP/1.1 ').length === bodies.length + 1 && answers.endsWith('}'),
      )
      const statuses = [...answers.matchAll(/\{"status":(\d+)/g)].map(([, status]) => status)
      expect(statuses).toEqual(['401', '200', '400', '401'])
      socket.destroy()
    }
  })

  it('reads a body that arrived before the handler was attached', async () => {
    const { sidecar } = await startHarness()
    const bodies: [string, number][] = [
      [JSON.stringify(firstCall()), 200],
      [JSON.stringify(firstCall({ headers: { Cookie: ['c'.repeat(500_000)] } })), 200],
    ]
    for (const waitMs of [0, 30]) {
      const server = createServer((request, response) => {
        setTimeout(() => sidecar.webhook(request, response), waitMs)
      })
      onTestFinished(() => void server.close())
      const { port } = await listen(server, { host: '127.0.0.1', port: 0, setting: 'PORT' })
      for (const [body, status] of bodies) {
        const { json } = await send(`http://127.0.0.1:${port}/`, { headers: caller, body })
        expect(json).toMatchObject({ status })
      }
    }
  })

  it('decides nothing when a body never arrives completely', async () => {
    const { sidecar, authorize, core } = await startHarness()
    const socket = connect(sidecar.port, '127.0.0.1')
    const body = JSON.stringify(firstCall())
    socket.write(
      `POST /authorize HTTP/1.1\r\nHost: sidecar\r\nAuthorization: Bearer ${secret}\r\n` +
        `Content-Length: ${body.length + 1}\r\n\r\n${body}`,
    )
    await new Promise((resolve) => setTimeout(resolve, 100))
    expect(core.calls).toMatchObject({ verifyApiKey: 0, lend: 0 })
    socket.destroy()
    expect((await authorize(firstCall())).json['status']).toBe(200)
  })

  it('37: keeps an idle connection longer than the signer does', async () => {
    const { sidecar } = await startHarness()
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const exchange = () =>
      send(`${sidecar.url}/authorize`, {
        headers: caller,
        body: JSON.stringify(firstCall()),
        agent,
      })
    const first = await exchange()
    expect(Number(/timeout=(\d+)/.exec(String(first.headers['keep-alive']))?.[1])).toBeGreaterThan(
      90,
    )
    expect((await exchange()).json['status']).toBe(200)
    agent.destroy()
  })

  it('38: answers twenty parallel calls on new connections', async () => {
    const { sidecar, authorize } = await startHarness()
    await authorize(firstCall())
    const replies = await Promise.all(
      Array.from({ length: 20 }, () =>
        send(`${sidecar.url}/authorize`, {
          headers: { ...caller, 'accept-encoding': 'gzip' },
          body: JSON.stringify(firstCall()),
          agent: new Agent({ keepAlive: false }),
        }),
      ),
    )
    expect(replies.map(({ json }) => json['status'])).toEqual(Array(20).fill(200))
  })

  it('39: answers an internal fault without its message', async () => {
    const { authorize, core } = await startHarness()
    core.script.failing = true
    const { transport, text } = await authorize(firstCall())
    expect(transport).toBe(200)
    expect(withoutDecision(text)).toBe(
      '{"status":503,"reason":"authorization unavailable","code":"authorization_unavailable"}',
    )
  })

  it('41: refuses requests above its limit at once', async () => {
    const { authorize, core } = await startHarness({ env: { AUTHORIZE_MAX_IN_FLIGHT: '2' } })
    core.script.delayMs = 500
    const busy = Promise.all([
      authorize(firstCall()),
      authorize(firstCall({ key: 'sk_live_alice' })),
    ])
    // Count requests as they arrive; keys are counted when answered.
    await until(() => core.calls.verifyApiKeys === 2)
    const reply = await Promise.race([authorize(firstCall()), busy])
    expect(reply).toMatchObject({ transport: 200, json: { status: 503 } })
    expect((await busy).map(({ json }) => json['status'])).toEqual([200, 200])
    expect((await authorize(firstCall())).json['status']).toBe(200)
  })
})
