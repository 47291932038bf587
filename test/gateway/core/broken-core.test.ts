import { once } from 'node:events'
import { createServer as createHttp2Server } from 'node:http2'
import { type Socket, createServer } from 'node:net'
import { describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { connectCore } from '../../../gateway/core/client.ts'
import { startGateway } from '../../../gateway/server.ts'
import { basic, publicUrl, quietEdge, serviceToken } from '../support.ts'

/**
 * Returns the gateway's status when core runs `act` on each connection after the first data, and the
 * number of connections.
 */
async function answerWhenCore(
  act: (socket: Socket) => void,
  method: 'GET' | 'DELETE' = 'GET',
): Promise<{ status: number; connections: number }> {
  let connections = 0
  const core = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', () => {
      connections += 1
      setTimeout(act, 20, socket)
    })
  }).listen(0, '127.0.0.1')
  await once(core, 'listening')
  const address = core.address()
  const target = `127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`
  const gateway = await startGateway(
    {
      host: '127.0.0.1',
      platformPort: 0,
      builderPort: 0,
      publicUrl,
      tokenAlg: 'RS256',
      core: { target, token: serviceToken, deadlineMs: 2_000 },
      edge: quietEdge,
    },
    { log: silentLog(), metrics: createMetrics('gateway') },
  )
  try {
    const user = `${gateway.platformUrl}/api/v1/apps/app_0123456789abcdef01234567/users/ada`
    const url = `${user}/${method === 'GET' ? 'allowances' : 'limits'}`
    const { status } = await fetch(url, { method, headers: { authorization: basic } })
    return { status, connections }
  } finally {
    await gateway.stop()
    core.close()
  }
}

describe('a connection to core that is lost without a sign', () => {
  it('ends, and a later request opens another', async () => {
    let connections = 0
    const open = new Set<Socket>()
    const core = createServer((socket) => {
      socket.on('error', () => {})
      open.add(socket)
      connections += 1
    }).listen(0, '127.0.0.1')
    await once(core, 'listening')
    const address = core.address()
    const target = `127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`
    // The requests overlap neither in time nor in one interval.
    const pings = { pingIntervalMs: 300, pingTimeoutMs: 300 }
    const { callsFor, close } = connectCore(
      { target, token: serviceToken, deadlineMs: 200, pings },
      publicUrl,
    )
    const call = () => callsFor({ authorization: basic, correlationId: 'test' }).users.listUsers({})
    for (const until = performance.now() + 2_000; performance.now() < until;)
      await expect(call()).rejects.toMatchObject({ reason: 'UNAVAILABLE' })
    expect(connections).toBeGreaterThanOrEqual(2)
    close()
    for (const socket of open) socket.destroy()
    core.close()
  })
})

describe('an answer of core without headers', () => {
  it('is UNAVAILABLE', async () => {
    const core = createHttp2Server((_, response) => response.end()).listen(0, '127.0.0.1')
    await once(core, 'listening')
    const address = core.address()
    const target = `127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`
    const { callsFor, close } = connectCore(
      { target, token: serviceToken, deadlineMs: 2_000 },
      publicUrl,
    )
    const calls = callsFor({ authorization: basic, correlationId: 'test' })
    await expect(calls.users.listUsers({})).rejects.toMatchObject({ reason: 'UNAVAILABLE' })
    close()
    core.close()
  })
})

describe('call interrupted by core', () => {
  it.each([
    ['resets the connection', (socket: Socket) => void socket.resetAndDestroy()],
    ['closes the connection', (socket: Socket) => void socket.end()],
    [
      'is not a gRPC server',
      (socket: Socket) => void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'),
    ],
  ])('returns 503 when core %s', async (_, act) => {
    expect((await answerWhenCore(act)).status).toBe(503)
  })

  it('is repeated once if it is a read, and never otherwise', async () => {
    const reset = (socket: Socket): void => void socket.resetAndDestroy()
    expect(await answerWhenCore(reset)).toEqual({ status: 503, connections: 2 })
    expect(await answerWhenCore(reset, 'DELETE')).toEqual({ status: 503, connections: 1 })
  })
})
