import { describe, expect, it } from 'vitest'
import type { SignerDoubleOptions } from '../../../deploy/signer-double/options.ts'
import { allow, answer, exchange, messageOf, parsed, startDouble, startWebhook } from './support.ts'
import type { Script } from './support.ts'

const EV = 100_000_000_000n
const call = { type: 'fixed' } as const

/** Makes one first call with a scripted webhook. */
async function pay(script: Script, options: SignerDoubleOptions = {}) {
  const webhook = await startWebhook(script)
  const budget = { url: webhook.url, budgetMs: 400 }
  const double = await startDouble({ ev: EV, webhook: budget, ...options })
  const result = await double.pay(call)
  await double.flush()
  return { ...result, webhook, tickets: parsed(double.events), events: double.events }
}

describe('reading a decision', () => {
  it.each([
    ['{"status":200}', ''],
    ['{"status":200} \n\t\r ', ''],
    ['{"STATUS":200}', ''],
    ['{"\u017ftatu\u017f":200}', ''],
    ['{"status":200,"auth_id":null}', ''],
    ['{"status":200,"auth_id":""}', ''],
    ['{"status":200,"expiry":null}', ''],
    ['{"status":200,"expiry":-5}', ''],
    ['{"status":200,"maxPrice":null}', ''],
    ['{"status":200,"code":"x","identity":{"a":[1.5,true,"\\ud83d\\ude00"]}}', ''],
    ['{"status":403,"status":200}', ''],
    ['{"status":200,"status":null}', ''],
    ['{"status":200,"authId":"A"}', ''],
    ['{"status":200,"Auth_ID":"A"}', 'A'],
    ['{"status":200,"auth_id":"A","AUTH_ID":"B"}', 'B'],
  ])('accepts %s', async (body, authId) => {
    const { status, tickets } = await pay(answer(body))
    expect(status).toBe(200)
    expect(tickets[0]?.data['auth_id']).toBe(authId)
  })

  it.each([
    '{"status":200.0}',
    '{"status":2e2}',
    '{"status":"200"}',
    '{"status":true}',
    '{"status":null}',
    '{}',
    'null',
    '{"status":0}',
    '{"status":-1}',
    '{"status":0200}',
    '[]',
    '""',
    '',
    '\ufeff{"status":200}',
    '{"status":200}{"status":200}',
    '{"status":200},',
    '{"status":200,}',
    "{'status':200}",
    '{"status":200,"reason":"\n"}',
    '{"status":NaN}',
    '{"status":200,"expiry":"1775574245"}',
    '{"status":200,"expiry":1775574245.5}',
    '{"status":200,"expiry":1.77e9}',
    '{"status":200,"expiry":9223372036854775808}',
    '{"status":403,"auth_id":123}',
    '{"status":403,"reason":123}',
    '{"status":200,"auth_id":1,"auth_id":"A"}',
    '{"status":200,"maxPrice":10}',
    '{"status":200,"maxPrice":{"price":"abc"}}',
    `{"status":200,"x":${'['.repeat(2000)}${']'.repeat(2000)}}`,
  ])('fails on %.60s', async (body) => {
    const result = await pay(answer(body))
    expect(result.status).toBe(500)
    expect(messageOf(result.body)).toBe('Internal Server Error')
    expect(result.tickets).toEqual([])
  })

  it('rejects with the last of two statuses', async () => {
    expect((await pay(answer('{"status":200,"status":403}'))).status).toBe(403)
  })
})

describe('the transport of a decision', () => {
  it.each([201, 204, 301, 400, 401, 403, 429, 500, 503])('fails on HTTP %i', async (status) => {
    const result = await pay(answer('{"status":200}', status))
    expect(result.status).toBe(500)
    expect(messageOf(result.body)).toBe('Internal Server Error')
  })

  it('ignores the content type', async () => {
    const script: Script = (_call, response) => {
      response.writeHead(200, { 'Content-Type': 'text/html' })
      response.end('{"status":200}')
    }
    expect((await pay(script)).status).toBe(200)
  })

  it('fails when the webhook is unreachable', async () => {
    const double = await startDouble({ ev: EV, webhook: { url: 'http://127.0.0.1:1/' } })
    expect((await double.pay(call)).status).toBe(500)
  })

  it('fails without a retry when head or body exceed the time limit', async () => {
    const silent = await pay(() => undefined)
    expect(silent.status).toBe(500)
    expect(silent.webhook.calls).toHaveLength(1)
    const slowBody = await pay((_call, response) => response.write('{"status":'))
    expect(slowBody.status).toBe(500)
  })

  it('fails when the connection breaks in the middle', async () => {
    expect((await pay((_call, response) => response.destroy())).status).toBe(500)
  })

  it.each([307, 308])('repeats the POST after a %i', async (status) => {
    const { status: answered, webhook } = await pay(({ url, ...rest }, response) => {
      if (url === '/moved') return allow({ url, ...rest }, response)
      response.writeHead(status, { Location: '/moved' })
      response.end()
    })
    expect(answered).toBe(200)
    expect(webhook.calls.map(({ method }) => method)).toEqual(['POST', 'POST'])
    expect(webhook.calls[1]?.body).toBe(webhook.calls[0]?.body)
  })

  it.each([301, 302, 303])('turns into a GET after a %i', async (status) => {
    const { status: answered, webhook } = await pay(({ url }, response) => {
      if (url === '/moved') response.writeHead(405)
      else response.writeHead(status, { Location: '/moved' })
      response.end()
    })
    expect(answered).toBe(500)
    expect(webhook.calls.map(({ method, body }) => [method, body === ''])).toEqual([
      ['POST', false],
      ['GET', true],
    ])
  })

  it('gives up after ten redirects', async () => {
    const { status, webhook } = await pay((_call, response) => {
      response.writeHead(307, { Location: '/again' })
      response.end()
    })
    expect(status).toBe(500)
    expect(webhook.calls).toHaveLength(11)
  })
})

describe('a rejection', () => {
  const reject = (status: number): Script => answer(`{"status":${status},"reason":"because <x>"}`)

  it.each([400, 401, 403, 429, 479, 480, 481, 482, 483, 499, 501, 502, 504, 599, 600, 999])(
    'with %i reaches the gateway with its reason',
    async (status) => {
      const result = await pay(reject(status))
      expect(result.status).toBe(status)
      expect(result.body).toBe('{"error":{"message":"because \\u003cx\\u003e"}}\n')
      expect(result.tickets).toEqual([])
      expect(result.headers['livepeer-orchestrator-url']).toBeUndefined()
    },
  )

  it.each([
    [500, 'Internal Server Error'],
    [503, 'Service Unavailable Error'],
  ])('with %i is masked', async (status, message) => {
    const result = await pay(reject(status))
    expect(result.status).toBe(status)
    expect(messageOf(result.body)).toBe(message)
  })

  it('without a reason contains its status', async () => {
    expect(messageOf((await pay(answer('{"status":403}'))).body)).toContain('403')
    expect(messageOf((await pay(answer('{"status":403,"reason":""}'))).body)).toContain('403')
  })

  it.each([1, 99, 1000, 5000])('with %i closes the connection', async (status) => {
    await expect(pay(reject(status))).rejects.toThrow('socket hang up')
  })

  it.each([100, 101, 103, 199])('with %i looks like success', async (status) => {
    const result = await pay(reject(status))
    expect(result.status).toBe(200)
    expect(messageOf(result.body)).toBe('because <x>')
    expect(result.state).toBeUndefined()
  })

  it.each([201, 202, 203, 206, 301, 308])('with %i keeps that status', async (status) => {
    const result = await pay(reject(status))
    expect(result.status).toBe(status)
    expect(result.headers.location).toBeUndefined()
  })

  it.each([204, 304])('with %i has no body', async (status) => {
    const result = await pay(reject(status))
    expect([result.status, result.body]).toEqual([status, ''])
  })

  it('leaves a create_new_payment and no ticket', async () => {
    const { events, tickets } = await pay(reject(483))
    expect(tickets).toEqual([])
    expect(parsed(events, 'create_new_payment')).toHaveLength(1)
  })
})

describe('other requests to the signer', () => {
  it('are answered like the Go server does', async () => {
    const { url } = await startDouble()
    const rest = 'HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}'
    const send = (line: string): Promise<string> => exchange(url, `${line} ${rest}`)
    expect(await send('GET /generate-live-payment')).toContain('405 Method Not Allowed')
    expect(await send('POST /elsewhere')).toContain('404 Not Found')
    expect(await send('POST /toString')).toContain('404 Not Found')
    expect(await send('POST /sign-orchestrator-info')).toMatch(
      /"address":"0x[0-9a-fA-F]{40}","signature":"0x[0-9a-f]{130}"/,
    )
  })
})
