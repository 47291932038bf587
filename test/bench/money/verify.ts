import { figure, startHelper } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count } from '../table.ts'

/**
 * Runs `tollgate verify` over the tickets of almost one user, the worst case for its memory.
 * Compares its time with reading the same rows once, and measures the maximum size of its process.
 */
export async function verifyBooks(bench: Bench): Promise<Finding[]> {
  const rounds = bench.quick ? 2 : 3
  const { url, caller, many, few } = await bench.million()
  // A small heap, so that the figure is what verify needs, without garbage not yet collected.
  const nodeOptions = ['--max-semi-space-size=8', '--max-old-space-size=64']
  const args = [url, caller.clientId]
  const run = () => startHelper({ program: 'money/verify-run.ts', args, nodeOptions })
  // One process per side, so that neither side's garbage affects the other.
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
