import { figure, startHelper } from './helper.ts'
import type { Bench, Finding } from './row.ts'
import { median, pairedRatio } from './stats.ts'
import { count } from './table.ts'

/**
 * `tollgate verify` over the tickets of nearly one user, the worst case for its memory: its time by that of reading the
 * same rows once, and the most that its process ever held.
 */
export async function verifyBooks(bench: Bench): Promise<Finding[]> {
  const rounds = bench.quick ? 2 : 3
  const { url, caller, many, few } = await bench.million()
  // With a small heap the figure is what it needs, and not what a collector that has room leaves lying.
  const nodeOptions = ['--max-semi-space-size=8', '--max-old-space-size=64']
  const args = [url, caller.clientId]
  const run = () => startHelper({ program: 'verify-run.ts', args, nodeOptions })
  // A process for each side: what one leaves behind weighs on nothing of the other.
  const [reader, verifier] = [await run(), await run()]
  bench.defer(reader.stop)
  bench.defer(verifier.stop)
  const [reads, proofs]: [number[], number[]] = [[], []]
  let [rows, most, mostOfReading] = [0, 0, 0]
  for (let round = 0; round < rounds; round++) {
    const read = await reader.ask({ do: 'read' })
    const proof = await verifier.ask({ do: 'verify' })
    if (figure(proof, 'result') > 0)
      throw new Error(`verify tells ${figure(proof, 'result')} differences`)
    rows = figure(read, 'result')
    most = figure(proof, 'mib')
    mostOfReading = figure(read, 'mib')
    reads.push(figure(read, 'ms'))
    proofs.push(figure(proof, 'ms'))
  }
  const seconds = (values: readonly number[]): string => `${(median(values) / 1000).toFixed(1)} s`
  return [
    {
      name: 'verify, by reading the same rows once',
      unit: '',
      target: { atMost: 6 },
      ...pairedRatio(proofs, reads),
      detail: `${seconds(proofs)} for ${count(many + few)} tickets; ${seconds(reads)} for their ${count(rows)} rows`,
    },
    {
      name: 'memory, verify',
      unit: 'MB',
      target: { atMost: 200 },
      value: most,
      spread: null,
      detail: `most that was resident; ${figure(verifier.ready, 'mib').toFixed(0)} MB before, ${mostOfReading.toFixed(0)} MB where the rows are only read`,
    },
  ]
}
