import { crc32 } from 'node:zlib'
import { figure } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import { count as inWords } from '../table.ts'
import { clientId, connections, openGate, portOf, requestsOf } from './parts.ts'

const userCount = 10_000

/** Resident memory of a sidecar after a million keys, each used once. */
export async function authorizeMemory(bench: Bench): Promise<Finding[]> {
  const count = bench.quick ? 250_000 : 1_000_000
  const gate = await openGate(bench)
  gate.core.script.owner = (key) => {
    const user = `user-${String(crc32(key) % userCount).padStart(7, '0')}`
    return { clientId, externalUserId: user, keyId: `key-${crc32(user + key)}` }
  }
  const template = gate.newKeys(userCount)
  const sidecar = await gate.sidecar()
  await gate.load.ask(requestsOf(template.slice(0, 1)))
  const port = portOf(sidecar)
  const run = await gate.load.ask({ port, count, connections, newKeys: true })
  const figures = await sidecar.ask({})
  return [
    {
      name: `authorize-memory, ${inWords(count)} keys seen`,
      unit: 'MB',
      target: { atMost: 300 },
      value: figure(figures, 'rssMb'),
      spread: null,
      detail: `${inWords(count / figure(run, 'seconds'))}/s, each verified at core`,
    },
  ]
}
