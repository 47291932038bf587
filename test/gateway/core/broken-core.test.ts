import { once } from 'node:events'
import { type Socket, createServer } from 'node:net'
import { describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { startGateway } from '../../../gateway/server.ts'
import { basic, publicUrl, quietEdge, serviceToken } from '../support.ts'

/** Returns the gateway's status when core runs `act` on the connection after the first data. */
async function answerWhenCore(act: (socket: Socket) => void): Promise<number> {
  const core = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', () => setTimeout(act, 20, socket))
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
    const url = `${gateway.platformUrl}/api/v1/apps/app_0123456789abcdef01234567/users/ada/allowances`
    return (await fetch(url, { headers: { authorization: basic } })).status
  } finally {
    await gateway.stop()
    core.close()
  }
}

describe('call interrupted by core', () => {
  it.each([
    ['resets the connection', (socket: Socket) => void socket.resetAndDestroy()],
    ['closes the connection', (socket: Socket) => void socket.end()],
    [
      'is not a gRPC server',
      (socket: Socket) => void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'),
    ],
  ])('returns 503 when core %s', async (_, act) => {
    expect(await answerWhenCore(act)).toBe(503)
  })
})
