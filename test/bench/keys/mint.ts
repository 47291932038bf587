import { availableParallelism } from 'node:os'
import { basic } from '../../../deploy/cli/client.ts'
import { startDeployed } from '../deployed.ts'
import { type Drive, drive } from '../drive.ts'
import type { Bench, Finding } from '../row.ts'
import { signatures } from './signatures.ts'
import { median, pairedRatio } from '../stats.ts'
import { count } from '../table.ts'

const userCount = 200
// Enough that core always has a signature to make.
const connections = 256
const mints = 6_000

/**
 * Compares user tokens minted over REST with the machine's maximum rate of signatures. Each has all
 * cores during its rounds; the service shares them with its database and with the load.
 */
export async function userTokenMint(bench: Bench): Promise<Finding[]> {
  const rounds = bench.quick ? 5 : 11
  const { load, cpuMs } = await prepare(bench)
  await drive({ ...load, count: 4_000 })
  await signatures(1_000)
  const [minted, signed, cpuUs]: [number[], number[], number[]] = [[], [], []]
  for (let round = 0; round < rounds; round++) {
    signed.push(await signatures(2_000))
    const before = await cpuMs()
    minted.push(await drive({ ...load, count: mints }))
    cpuUs.push((((await cpuMs()) - before) * 1000) / mints)
  }
  const cores = availableParallelism()
  return [
    {
      name: 'user-token mint over REST, by signatures',
      unit: '',
      target: { atLeast: 0.6 },
      ...pairedRatio(minted, signed),
      detail: `${count(median(minted))}/s, RS256 alone ${count(median(signed))}/s on ${cores} cores`,
    },
    {
      name: 'user-token mint over REST, processor time',
      unit: '',
      target: null,
      ...pairedRatio(
        signed.map((perSecond) => (cores * 1e6) / perSecond),
        cpuUs,
      ),
      detail: `${median(cpuUs).toFixed(0)} us of gateway and core for a token, signature and all`,
    },
  ]
}

interface Parts {
  readonly load: Omit<Drive, 'count'>
  cpuMs(): Promise<number>
}

async function prepare(bench: Bench): Promise<Parts> {
  const { operator, platformPort: port, coreCpuMs, gatewayCpuMs } = await startDeployed(bench)
  const app = await operator.apps.createApp({
    name: 'Bench',
    ownerEmail: undefined,
    ownerPassword: undefined,
    starterUsdMicros: undefined,
  })
  const authorization = basic(app.m2mClientId, app.m2mClientSecret)
  const users = `/api/v1/apps/${app.clientId}/users`
  const names = Array.from({ length: userCount }, (_, i) => `user-${String(i).padStart(4, '0')}`)
  for (const externalUserId of names) {
    const response = await fetch(`http://127.0.0.1:${port}${users}`, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/json' },
      body: JSON.stringify({ externalUserId }),
      signal: AbortSignal.timeout(5_000),
    })
    if (!response.ok) throw new Error(`no user: ${await response.text()}`)
  }
  const requests = names.map((name) =>
    Buffer.from(
      `POST ${users}/${name}/token HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n` +
        `Authorization: ${authorization}\r\nContent-Length: 0\r\n\r\n`,
    ),
  )
  return {
    load: { port, requests, connections },
    cpuMs: async () => (await coreCpuMs()) + (await gatewayCpuMs()),
  }
}
