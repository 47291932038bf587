import { once } from 'node:events'
import { createServer } from 'node:net'

const portSettings = [
  'CORE_PORT',
  'PLATFORM_PORT',
  'BUILDER_PORT',
  'SIDECAR_PORT',
  'ADMIN_PORT',
] as const

/** Replaces each port that is 0 by a free one: the public URL must be known before anything listens. */
export async function choosePorts(env: Record<string, string | undefined>): Promise<void> {
  const probes = portSettings
    .filter((name) => env[name]?.trim() === '0')
    .map((name) => ({ name, server: createServer() }))
  // All are held at once, so that no two settings get the same port.
  for (const { name, server } of probes) {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const address = server.address()
    env[name] = String(typeof address === 'object' && address ? address.port : 0)
  }
  for (const { server } of probes) {
    server.close()
    await once(server, 'close')
  }
}
