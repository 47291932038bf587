/** How far a long command is: a bar on a terminal, nothing but its lines elsewhere. */
export interface ProgressBar {
  update(of: { name: string; done: number; total: number; note?: string }): void
  /** A line above the bar, on standard output. */
  line(text: string): void
  end(): void
}

const width = 24
const redrawMs = 100

export function createProgressBar(stream: NodeJS.WriteStream = process.stderr): ProgressBar {
  let drawn = false
  let lastDrawn = 0

  function clear(): void {
    if (drawn) stream.write('\r\u001b[K')
    drawn = false
  }

  function update({
    name,
    done,
    total,
    note = '',
  }: {
    name: string
    done: number
    total: number
    note?: string
  }): void {
    if (!stream.isTTY || Date.now() - lastDrawn < redrawMs) return
    lastDrawn = Date.now()
    const filled = total === 0 ? width : Math.min(width, Math.round((done / total) * width))
    const bar = '#'.repeat(filled).padEnd(width, '.')
    stream.write(
      `\r\u001b[K[${bar}] ${done}/${total} ${name} ${note}`.slice(0, Math.max(40, stream.columns)),
    )
    drawn = true
  }

  function line(text: string): void {
    clear()
    process.stdout.write(`${text}\n`)
  }

  return { update, line, end: clear }
}
