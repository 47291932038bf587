import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Helper } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count as inWords } from '../table.ts'
import { openGate, portOf, secret } from './parts.ts'
import { bodyOf } from './signer-call.ts'

const run = promisify(execFile)
const source = join(import.meta.dirname, 'payments.go')
const atATime = 16

/**
 * Compares payments per second of a signer's client in Go: with the sidecar as webhook, and with a
 * webhook that always allows.
 */
export async function behindSigner(bench: Bench): Promise<Finding[]> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-bench-'))
  bench.defer(() => rm(folder, { recursive: true, force: true }))
  const program = join(folder, 'payments')
  const problem = await run('go', ['build', '-o', program, source]).catch((error: Error) => error)
  if (problem instanceof Error) {
    bench.say(`behind-signer: no row, because the client is not built: ${problem.message}`)
    return []
  }
  const gate = await openGate(bench)
  const [key = ''] = gate.newKeys(1)
  const sidecar = await gate.sidecar({
    IDENTITY_TTL_SECONDS: '3600',
    REVOCATION_BOUND_SECONDS: '3660',
  })
  const bare = await gate.bare(sidecar, key)
  const [rounds, seconds] = bench.quick ? [5, 1] : [11, 3]
  const rate = async (server: Helper): Promise<number> => {
    const url = `http://127.0.0.1:${portOf(server)}/authorize`
    const args = [url, secret, bodyOf(key), String(seconds), String(atATime)]
    return Number((await run(program, args)).stdout)
  }
  for (const server of [bare, sidecar]) await rate(server)
  const [nods, own]: [number[], number[]] = [[], []]
  for (let round = 0; round < rounds; round++) {
    nods.push(await rate(bare))
    own.push(await rate(sidecar))
  }
  return [
    {
      name: `behind a signer, ${atATime} payments at a time`,
      unit: '',
      target: { atLeast: 0.85 },
      ...pairedRatio(own, nods),
      detail: `${inWords(median(own))} payments/s, by a nod ${inWords(median(nods))}/s`,
    },
  ]
}
