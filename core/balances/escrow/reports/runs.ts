import type { UsdAttos } from '../../../lib/money.ts'
import type { NewAuthorisation } from '../port.ts'

/** One call of an authorisation. */
export interface CallOfRun {
  readonly sequence: bigint
  readonly signedMicros: bigint
  readonly bound: UsdAttos
}

/** Returns the calls of an authorisation that have no ticket yet. */
export function openCalls({ sequence, signedMicros, bound, run }: NewAuthorisation): CallOfRun[] {
  if (!run) return [{ sequence, signedMicros, bound }]
  const first = sequence - BigInt(run.micros.length) + 1n
  return run.micros.flatMap((micros, index) => {
    const number = first + BigInt(index)
    const callBound = run.bounds[index]
    const isOpen = run.open.some(({ from, to }) => from <= number && number <= to)
    return isOpen && callBound !== undefined
      ? [{ sequence: number, signedMicros: micros, bound: callBound }]
      : []
  })
}
