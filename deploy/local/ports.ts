import { once } from 'node:events'
import { createServer } from 'node:net'
import type { EnvReader } from '../../core/lib/env.ts'
import { listenError } from '../../core/lib/http.ts'

/**
 * The ports of an all-in-one service, in the order that PORT_BASE assigns them. The edge is off
 * unless EDGE_PORT is set.
 */
const portSettings = [
  'PLATFORM_PORT',
  'BUILDER_PORT',
  'SIDECAR_PORT',
  'CORE_PORT',
  'ADMIN_PORT',
  'EDGE_PORT',
] as const
const hostSettings: Readonly<Partial<Record<(typeof portSettings)[number], string>>> = {
  CORE_PORT: 'CORE_HOST',
  ADMIN_PORT: 'ADMIN_HOST',
}
const basedPorts = portSettings.filter((name) => name !== 'EDGE_PORT')

type Variables = Record<string, string | undefined>

/** Declares the ports that belong to the all-in-one process itself. */
export function readPorts(env: EnvReader): { readonly adminPort: number } {
  const base = env.optional('PORT_BASE', {
    meaning: `First of ${basedPorts.length} ports in a row: ${basedPorts.join(', ')}. A port with a setting of its own keeps it.`,
  })
  if (base !== undefined && !isPortBase(base))
    env.problem(`PORT_BASE must be a whole number from 1 to ${maxBase}`)
  const adminPort = env.port('ADMIN_PORT', {
    fallback: '9464',
    meaning: 'Port of metrics and health, all in one process.',
  })
  return { adminPort }
}

const maxBase = 65_536 - basedPorts.length

const isPortBase = (text: string): boolean =>
  /^\d{1,5}$/.test(text) && Number(text) >= 1 && Number(text) <= maxBase

/** Fills in the ports derived from PORT_BASE. */
export function applyPortBase(env: Variables): void {
  const base = env['PORT_BASE']?.trim() ?? ''
  if (!isPortBase(base)) return
  for (const [offset, name] of basedPorts.entries()) env[name] ??= String(Number(base) + offset)
}

/**
 * Replaces each port 0 by a free one, because the public URL must be known before anything listens.
 */
export async function choosePorts(env: Variables): Promise<void> {
  const names = portSettings.filter((name) => env[name]?.trim() === '0')
  // Open all probes at the same time, so that no two settings get the same port.
  const probes = await Promise.all(names.map(() => openProbe(0, '127.0.0.1')))
  for (const [index, probe] of probes.entries()) {
    const name = names[index]
    if (name !== undefined) env[name] = String(probe.port)
  }
  await Promise.all(probes.map(({ close }) => close()))
}

/**
 * Rejects with one message that lists all taken ports. Ports missing in `env` have their value in
 * `settings`.
 */
export async function requireFreePorts(
  env: Variables,
  settings: readonly { readonly name: string; readonly value: string }[],
): Promise<void> {
  const valueOf = (name: string): string =>
    env[name] ?? settings.find((setting) => setting.name === name)?.value ?? ''
  const ports = portSettings
    .map((name) => ({
      setting: name,
      port: Number(valueOf(name)),
      host: valueOf(hostSettings[name] ?? 'HOST'),
    }))
    .filter(({ port }) => port > 0)
  const conflicts: { at: (typeof ports)[number]; error: NodeJS.ErrnoException }[] = []
  const probes = ports.map((at) =>
    openProbe(at.port, at.host).catch((error: NodeJS.ErrnoException) => {
      conflicts.push({ at, error })
    }),
  )
  const open = await Promise.all(probes)
  await Promise.all(open.map((probe) => probe?.close()))
  const [first] = conflicts
  if (!first) return
  if (conflicts.length === 1) throw listenError(first.error, first.at)
  const list = conflicts.map(({ at }) => `${at.port} (${at.setting})`).join(', ')
  if (first.error.code !== 'EADDRINUSE') throw listenError(first.error, first.at)
  throw new Error(
    `ports ${list} cannot be opened, most likely because they are in use; set PORT_BASE to move all ports, or set each port`,
  )
}

async function openProbe(port: number, host: string) {
  const server = createServer()
  server.listen(port, host)
  await once(server, 'listening')
  const address = server.address()
  return {
    port: typeof address === 'object' && address ? address.port : port,
    close: async (): Promise<void> => {
      server.close()
      await once(server, 'close')
    },
  }
}
