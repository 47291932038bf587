import { createHash, hash } from 'node:crypto'
import { DamagedFile } from '../../lib/files/whole-file.ts'
import { controlLine, parseControl, readLines, writeCompressed } from './ticket-file.ts'

/**
 * A books file: NDJSON, compressed by its file extension (.gz or .zst). The first line is the
 * manifest. Each table begins with its name and columns; then come chunks of rows, each row a JSON
 * array of texts, each chunk followed by the number and the SHA-256 of its rows. The last line has
 * the sums of the file.
 */
export interface BooksManifest {
  readonly format: 'tollgate-books'
  readonly version: 1
  /** The newest migration of the exporting release. */
  readonly migration: string
  readonly exportedAt: string
  readonly ticketMonths: readonly string[]
  /** The next transaction id of the exporting cluster. */
  readonly transaction: string
}

export interface BooksChunk {
  readonly table: string
  readonly columns: readonly string[]
  readonly lines: readonly string[]
}

export interface BooksSums {
  readonly tables: number
  readonly rows: number
  readonly sha256: string
}

/** Writes a whole file. A table without rows is one chunk without lines. */
export async function writeBooksFile(
  path: string,
  manifest: BooksManifest,
  { name, chunks }: { readonly name: string; readonly chunks: AsyncIterable<BooksChunk> },
): Promise<BooksSums> {
  const whole = createHash('sha256')
  let [tables, rows, current, sha256] = [0, 0, '', '']

  async function* bytes(): AsyncGenerator<Buffer> {
    const counted = (line: Buffer): Buffer => {
      whole.update(line)
      return line
    }
    yield counted(controlLine('manifest', { ...manifest }))
    for await (const { table, columns, lines } of chunks) {
      if (table !== current) {
        tables += 1
        current = table
        yield counted(controlLine('table', { name: table, columns }))
      }
      if (lines.length === 0) continue
      const text = Buffer.from(lines.map((line) => `${line}\n`).join(''))
      rows += lines.length
      yield counted(text)
      yield controlLine('chunk', { rows: lines.length, sha256: hash('sha256', text, 'hex') })
    }
    sha256 = whole.digest('hex')
    yield controlLine('end', { tables, rows, sha256 })
  }

  await writeCompressed(path, name, bytes())
  return { tables, rows, sha256 }
}

const maxLineBytes = 4 * 1024 * 1024
const maxChunkBytes = 64 * 1024 * 1024

interface OpenTable {
  readonly name: string
  readonly columns: readonly string[]
}

/**
 * Yields the manifest, then each table without lines, followed by its chunks after checking their
 * checksums. Returns the sums. Throws DamagedFile at the first fault.
 */
export async function* readBooksFile(
  path: string,
): AsyncGenerator<BooksManifest | BooksChunk, BooksSums> {
  const whole = createHash('sha256')
  const file = createOpenFile()
  for await (const line of readLines(path, maxLineBytes)) {
    const control = parseControl(line)
    const kind = control?.['kind']
    if (kind === 'end') return file.end(control ?? {}, whole.digest('hex'))
    if (kind !== 'chunk') whole.update(line)
    const part = control === null ? file.row(line) : file.part(control)
    if (part !== null) yield part
  }
  throw new DamagedFile('the end of the file is missing')
}

type Control = Readonly<Record<string, unknown>>

/** The state of a file that is being read. */
function createOpenFile() {
  let manifest: BooksManifest | null = null
  let table: OpenTable | null = null
  let lines: Buffer[] = []
  let [size, tables, rows] = [0, 0, 0]

  function row(line: Buffer): null {
    if (manifest === null) throw new DamagedFile('this is not a books file')
    lines.push(line)
    size += line.length
    if (size > maxChunkBytes) throw new DamagedFile('a chunk is too large')
    return null
  }

  function part(control: Control): BooksManifest | BooksChunk {
    if (manifest === null) return (manifest = manifestOf(control))
    if (control['kind'] === 'chunk') return close(control)
    if (lines.length > 0) throw new DamagedFile('a chunk has no end')
    table = tableOf(control)
    tables += 1
    return { table: table.name, columns: table.columns, lines: [] }
  }

  function close(control: Control): BooksChunk {
    const { name, columns } = requireTable(table)
    const chunk = { table: name, columns, lines: checkedLines(lines, control) }
    rows += lines.length
    ;[lines, size] = [[], 0]
    return chunk
  }

  const end = (control: Control, sha256: string): BooksSums =>
    checkedEnd(control, { tables, rows, sha256 }, lines)

  return { row, part, end }
}

function requireTable(table: OpenTable | null): OpenTable {
  if (table === null) throw new DamagedFile('rows belong to no table')
  return table
}

function checkedLines(open: readonly Buffer[], control: Control): string[] {
  const text = Buffer.concat(open)
  if (control['rows'] !== open.length || hash('sha256', text, 'hex') !== control['sha256'])
    throw new DamagedFile('a chunk does not match its checksum')
  return open.map((line) => line.toString('utf8', 0, line.length - 1))
}

function checkedEnd(control: Control, sums: BooksSums, open: readonly Buffer[]): BooksSums {
  const isEnd =
    open.length === 0 &&
    control['tables'] === sums.tables &&
    control['rows'] === sums.rows &&
    control['sha256'] === sums.sha256
  if (!isEnd) throw new DamagedFile('the file does not match its own sums')
  return sums
}

function tableOf(control: Control): OpenTable {
  const { name, columns } = control
  if (control['kind'] !== 'table' || typeof name !== 'string' || !isTexts(columns))
    throw new DamagedFile('a table has no name')
  return { name, columns }
}

const isTexts = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((item) => typeof item === 'string')

const month = /^\d{4}-(0[1-9]|1[0-2])$/

function manifestOf(control: Control): BooksManifest {
  const { format, version, migration, exportedAt, ticketMonths, transaction } = control
  if (format !== 'tollgate-books') throw new DamagedFile('this is not a books file')
  if (version !== 1)
    throw new DamagedFile(`this books file has version ${String(version)}; only 1 can be read`)
  const isWhole =
    isTexts(ticketMonths) &&
    ticketMonths.every((one) => month.test(one)) &&
    ticketMonths.length < 10_000
  if (!isWhole || typeof transaction !== 'string' || !/^\d{1,18}$/.test(transaction))
    throw new DamagedFile('the manifest is not whole')
  return {
    format,
    version,
    migration: String(migration),
    exportedAt: String(exportedAt),
    ticketMonths,
    transaction,
  }
}
