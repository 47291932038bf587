import type { Balance, Usage } from './api.ts'

/** A figure of the service, and the same figure of another side. */
export type Comparison = readonly [name: string, ours: string, theirs: string]

const barWidth = 30
const textWidth = 67

/** Formats USD micros for display: "$4.75". */
export function usd(micros: string): string {
  const value = BigInt(micros)
  const cents = value / 10_000n
  return `$${cents / 100n}.${(cents % 100n).toString().padStart(2, '0')}`
}

/** Writes the demo's progress. On a terminal the balance is updated in place. */
export function createScreen(out: NodeJS.WriteStream) {
  let lineOpen = false

  const write = (text: string): void => void out.write(text)

  function step(title: string, text: string): void {
    end()
    const [first = '', ...others] = wrap(text)
    write(`  ${title.padEnd(10)} ${first}\n`)
    others.forEach(more)
  }

  /** Writes the title of an act. */
  function act(title: string): void {
    end()
    write(`\n  ${title}\n\n`)
  }

  /** Continues the step before on another line. */
  const more = (text: string): void => {
    for (const line of wrap(text)) write(`  ${''.padEnd(10)} ${line}\n`)
  }

  function balance(now: Balance, calls: number): void {
    const granted = Number(BigInt(now.lifetimeGrantedUsdMicros) / 1000n) || 1
    const full = Math.round((barWidth * Number(BigInt(now.balanceUsdMicros) / 1000n)) / granted)
    const bar = '█'.repeat(full) + '░'.repeat(Math.max(0, barWidth - full))
    const text = `  ${'Balance'.padEnd(10)} ${bar} ${usd(now.balanceUsdMicros)} left, ${calls} payments`
    if (out.isTTY) {
      write(`\r\x1b[2K${text}`)
      lineOpen = true
    } else if (calls % 5 === 1) write(`${text}\n`)
  }

  /** Ends the line that is updated in place. */
  function end(): void {
    if (lineOpen) write('\n')
    lineOpen = false
  }

  function usage({ byPipelineModel }: Usage): void {
    write('\n  Usage by pipeline\n')
    for (const row of byPipelineModel) {
      const name = row.modelId === 'unknown' ? row.pipeline : `${row.pipeline} ${row.modelId}`
      write(
        `    ${name.padEnd(24)} ${String(row.requestCount).padStart(5)} payments  ${usd(row.networkFeeUsdMicros).padStart(8)}\n`,
      )
    }
  }

  function checks(rows: readonly Comparison[], sums: { eth: string; overage: string }): void {
    write(
      `\n  ${sums.eth} ETH were signed; ${usd(sums.overage)} exceeds the allowance (overage).\n`,
    )
    write(`    ${''.padEnd(22)} ${'the service says'.padEnd(21)} the signer signed\n`)
    compare(rows)
  }

  /** Writes figures of two sides, which must be equal. */
  function proof(rows: readonly Comparison[]): void {
    end()
    write(`\n    ${''.padEnd(22)} ${'the service says'.padEnd(21)} the other side says\n`)
    compare(rows)
  }

  function compare(rows: readonly Comparison[]): void {
    for (const [name, ours, theirs] of rows)
      write(
        `    ${name.padEnd(22)} ${ours.padEnd(21)} ${theirs.padEnd(21)} ${ours === theirs ? 'equal' : 'DIFFERENT'}\n`,
      )
  }

  const verdict = (isRight: boolean): void =>
    write(isRight ? '\n  Everything adds up.\n' : '\n  Something does not add up.\n')

  return { act, step, more, balance, end, usage, checks, proof, verdict }
}

export type Screen = ReturnType<typeof createScreen>

/**
 * Breaks a text into lines for a terminal of 80 columns. Keeps leading spaces. A longer word, such
 * as an address, stays whole.
 */
export function wrap(text: string): string[] {
  const [first = '', ...words] = text.split(' ')
  const lines = [first]
  for (const word of words) {
    const last = lines.at(-1) ?? ''
    const longer = `${last} ${word}`
    if (longer.length <= textWidth || last.trim() === '') lines[lines.length - 1] = longer
    else lines.push(word)
  }
  return lines
}
