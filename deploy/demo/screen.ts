import type { Balance, Usage } from './api.ts'

const barWidth = 30

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
    write(`  ${title.padEnd(10)} ${text}\n`)
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

  function checks(
    rows: readonly (readonly [string, string, string])[],
    sums: { eth: string; overage: string },
  ): void {
    write(
      `\n  ${sums.eth} ETH were signed; ${usd(sums.overage)} exceeds the allowance (overage).\n`,
    )
    write(`    ${''.padEnd(22)} ${'the service says'.padEnd(24)} the signer signed\n`)
    for (const [name, ours, theirs] of rows) {
      write(
        `    ${name.padEnd(22)} ${ours.padEnd(24)} ${theirs.padEnd(24)} ${ours === theirs ? 'equal' : 'DIFFERENT'}\n`,
      )
    }
    write(
      rows.every(([, ours, theirs]) => ours === theirs)
        ? '\n  Everything adds up.\n'
        : '\n  Something does not add up.\n',
    )
  }

  return { step, balance, end, usage, checks }
}

export type Screen = ReturnType<typeof createScreen>
