/** Prints one JSON document on standard output. */
export const printJson = (value: unknown): void =>
  void process.stdout.write(`${JSON.stringify(value, null, 2)}\n`)

export const printLines = (lines: readonly string[]): void =>
  void process.stdout.write(`${lines.join('\n')}\n`)

/** Prints the answer as JSON with --json, otherwise the lines for people. */
export function report(
  { json }: { readonly json?: boolean | undefined },
  answer: unknown,
  lines: () => readonly string[],
): void {
  if (json) printJson(answer)
  else printLines(lines())
}

/** Formats rows below a header; returns the text `empty` without rows. */
export const table = (
  columns: readonly string[],
  rows: readonly (readonly string[])[],
  empty?: string,
): string[] => (rows.length === 0 && empty !== undefined ? [empty] : aligned([columns, ...rows]))

/**
 * Formats the properties of one thing: a name and a value per line. Omits those without a value.
 */
export const properties = (
  rows: readonly (readonly [name: string, value: string | undefined])[],
): string[] =>
  aligned(rows.flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])))

/** Pads each column to its widest cell. Control characters become `?`. */
function aligned(rows: readonly (readonly string[])[]): string[] {
  const cells = rows.map((row) => row.map(printable))
  const widths = (cells[0] ?? []).map((_, column) =>
    Math.max(...cells.map((row) => row[column]?.length ?? 0)),
  )
  return cells.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  )
}

// Users choose their names, which must not control a terminal.
export const printable = (cell: string): string => cell.replace(/[\p{Cc}\p{Cf}]/gu, '?')

/** Shows the progress of a long command: a bar on a terminal; elsewhere only the lines. */
export interface ProgressBar {
  update(progress: Progress): void
  /** Prints a line above the bar, on standard output. */
  line(text: string): void
  end(): void
}

export interface Progress {
  readonly name: string
  readonly done: number
  readonly total: number
  readonly note?: string
}

const barWidth = 24
const redrawMs = 100

export function createProgressBar(stream: NodeJS.WriteStream = process.stderr): ProgressBar {
  let isDrawn = false
  let drawnAt = 0

  function clear(): void {
    if (isDrawn) stream.write('\r\u001b[K')
    isDrawn = false
  }

  function update({ name, done, total, note = '' }: Progress): void {
    if (!stream.isTTY || Date.now() - drawnAt < redrawMs) return
    drawnAt = Date.now()
    const full = total === 0 ? barWidth : Math.min(barWidth, Math.round((done / total) * barWidth))
    const bar = '#'.repeat(full).padEnd(barWidth, '.')
    stream.write(
      `\r\u001b[K[${bar}] ${done}/${total} ${name} ${note}`.slice(0, Math.max(40, stream.columns)),
    )
    isDrawn = true
  }

  function line(text: string): void {
    clear()
    process.stdout.write(`${text}\n`)
  }

  return { update, line, end: clear }
}
