/** Prints one JSON document on standard output. */
export const printJson = (value: unknown): void =>
  void process.stdout.write(`${JSON.stringify(value, null, 2)}\n`)

/** Prints lines on standard output. Control characters become `?`. */
export const printLines = (lines: readonly string[]): void =>
  void process.stdout.write(lines.map((line) => `${printable(line)}\n`).join(''))

type Cell = string | number | boolean | undefined

/** A column of a table: a key, whose name is the header, or a header and its cell. */
export type Column<Row> =
  | (keyof Row & string)
  | readonly [header: string, cell: (keyof Row & string) | ((row: Row) => Cell)]

/** Formats rows below a header; returns the text `empty` without rows. */
export const table = <Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  empty?: string,
): string[] =>
  rows.length === 0 && empty !== undefined ? [empty] : aligned(formatCells(rows, columns))

/** The cells of a table, with its header. */
export function formatCells<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
): string[][] {
  const pairs = columns.map((column) =>
    typeof column === 'string' ? ([column, column] as const) : column,
  )
  return [
    pairs.map(([header]) => header),
    ...rows.map((row) =>
      pairs.map(([, cell]) => textOf(typeof cell === 'function' ? cell(row) : row[cell])),
    ),
  ]
}

const textOf = (value: unknown): string =>
  value === undefined ? '' : typeof value === 'boolean' ? (value ? 'yes' : 'no') : String(value)

/**
 * Formats the properties of one thing: a name and a value per line. Omits those without a value.
 */
export const properties = (rows: readonly (readonly [name: string, value: Cell])[]): string[] =>
  aligned(rows.flatMap(([name, value]) => (value === undefined ? [] : [[name, textOf(value)]])))

/** Pads each column to its widest cell. */
function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  )
  return rows.map((row) =>
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
