import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type TestService, startTestService } from '../../support/deployment/service.ts'

const connections = 200

let running: TestService
beforeAll(async () => {
  running = await startTestService()
})
afterAll(() => running?.stop())

interface Conversation {
  received: string
  readonly closed: Promise<void>
}

/** Opens a connection that sends `head`, then `byte` every second, until the server closes it. */
function trickle(url: string, head: string, byte: string): Conversation {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  const timer = setInterval(() => socket.write(byte), 1_000)
  const conversation = {
    received: '',
    closed: new Promise<void>((resolve) => socket.once('close', () => resolve())).finally(() =>
      clearInterval(timer),
    ),
  }
  socket.on('data', (bytes) => (conversation.received += bytes.toString('latin1')))
  socket.on('error', () => socket.destroy())
  socket.write(head)
  return conversation
}

/** Sends the text at once and returns the response. */
async function send(url: string, text: string): Promise<string> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  let received = ''
  socket.on('data', (bytes) => (received += bytes.toString('latin1')))
  socket.on('error', () => socket.destroy())
  socket.write(text)
  await new Promise((resolve) => socket.once('close', resolve))
  return received
}

/** Status of a connection that closed without an answer. */
const cut = 0
const statusOf = (answer: string): number => Number(answer.split(' ')[1])

describe('slow requests', () => {
  it('are cut with 408 while others are served', async () => {
    const { platformUrl, builderUrl } = running.service.quickstart
    const slow = [platformUrl, builderUrl].flatMap((url) =>
      Array.from({ length: connections / 2 }, () => trickle(url, 'GET /health HTTP/1.1\r\n', 'x')),
    )
    for (let i = 0; i < 5; i++) {
      expect((await fetch(`${platformUrl}/health`)).status).toBe(200)
      await sleep(100)
    }
    await Promise.all(slow.map(({ closed }) => closed))
    expect(new Set(slow.map(({ received }) => statusOf(received)))).toEqual(new Set([408]))
  }, 60_000)
})

describe('huge requests', () => {
  const huge = 'x'.repeat(3 * 1024 * 1024)
  const post = (headers: string, body: string): string =>
    `POST /api/v1/oidc/token HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${headers}\r\n\r\n${body}`

  it.each([
    ['address', `GET /${huge} HTTP/1.1\r\nHost: x\r\n\r\n`, [414]],
    ['header', `GET / HTTP/1.1\r\nHost: x\r\nX: ${huge}\r\n\r\n`, [431]],
    ['announced body', post('Content-Length: 999999999', 'x'), [413]],
    [
      'body',
      post(
        `Content-Type: application/x-www-form-urlencoded\r\nContent-Length: ${huge.length}`,
        huge,
      ),
      [413],
    ],
    [
      'chunk',
      post('Transfer-Encoding: chunked', `${huge.length.toString(16)}\r\n${huge}\r\n0\r\n\r\n`),
      [413],
    ],
    [
      'number of fields',
      post(
        `Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 4000`,
        'a=1&'.repeat(1_000),
      ),
      [400],
    ],
    [
      'number of parameters',
      `GET /health?${'a&'.repeat(5_000)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`,
      [400],
    ],
    [
      'chunk extension',
      post('Transfer-Encoding: chunked', `1;${huge}\r\nx\r\n0\r\n\r\n`),
      [400, 413, 431],
    ],
  ])('with a huge %s get a specific status, or are cut', async (_, text, statuses) => {
    const answer = await send(running.service.quickstart.platformUrl, text)
    // A client that is still writing may lose the connection before it reads the answer.
    expect([...statuses, cut]).toContain(answer === '' ? cut : statusOf(answer))
    expect((await fetch(`${running.service.quickstart.platformUrl}/health`)).status).toBe(200)
  })
})
