import { createHash, hash } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip, createGzip, createZstdCompress, createZstdDecompress } from 'node:zlib'
import { DamagedFile } from '../../lib/files/whole-file.ts'

/**
 * A ticket file: NDJSON, compressed by its file extension (.gz or .zst). The first line is the
 * manifest. Then come chunks of ticket lines, each followed by a line with their number and the
 * SHA-256 of their bytes. The last line has the number and the SHA-256 of all ticket lines. Control
 * lines have a `kind`, tickets do not.
 */
export interface Manifest {
  readonly format: 'tollgate-tickets'
  readonly version: 2
  readonly clientId: string
  /** Signing times, ISO 8601; null is unbounded. */
  readonly from: string | null
  readonly to: string | null
  readonly exportedAt: string
  /** Head of the app's ledger (docs/ledger.md, "Chain"). */
  readonly booksHead?: { readonly number: string; readonly head: string } | null | undefined
}

export interface Chunk {
  readonly lines: Buffer
  readonly tickets: number
  readonly sha256: string
}

/** Sums of a whole file. */
export interface FileSums {
  readonly tickets: number
  readonly chunks: number
  readonly sha256: string
}

const compressed = /\.(gz|zst)$/
export const isTicketFileName = (path: string): boolean => compressed.test(path)

/** Writes a whole file and flushes it to disk. Reads chunks only as fast as it can write them. */
export async function writeTicketFile(
  path: string,
  manifest: Manifest,
  { name, chunks }: { name: string; chunks: AsyncIterable<Chunk> },
): Promise<FileSums> {
  const whole = createHash('sha256')
  let [tickets, count] = [0, 0]
  let sha256 = ''

  async function* bytes(): AsyncGenerator<Buffer> {
    yield controlLine('manifest', { ...manifest })
    for await (const chunk of chunks) {
      whole.update(chunk.lines)
      tickets += chunk.tickets
      count += 1
      yield chunk.lines
      yield controlLine('chunk', { tickets: chunk.tickets, sha256: chunk.sha256 })
    }
    sha256 = whole.digest('hex')
    yield controlLine('end', { tickets, chunks: count, sha256 })
  }

  await writeCompressed(path, name, bytes())
  return { tickets, chunks: count, sha256 }
}

/** Writes a file, compressed by the extension of `name`, and flushes it to disk. */
export const writeCompressed = (
  path: string,
  name: string,
  bytes: AsyncIterable<Buffer>,
): Promise<void> =>
  pipeline(
    Readable.from(bytes, { objectMode: false }),
    name.endsWith('.gz') ? createGzip() : createZstdCompress(),
    createWriteStream(path, { mode: 0o600, flush: true }),
  )

export const controlLine = (kind: string, more: object): Buffer =>
  Buffer.from(`${JSON.stringify({ kind, ...more })}\n`)

const maxLineBytes = 64 * 1024
const maxChunkTickets = 1_000
const maxChunkBytes = 8 * 1024 * 1024

/**
 * Yields the manifest of a file, then each chunk after checking its checksum. Returns the sums of
 * the file. Throws DamagedFile at the first fault, including a missing end.
 */
export async function* readTicketFile(path: string): AsyncGenerator<Manifest | Chunk, FileSums> {
  const whole = createHash('sha256')
  const open = createOpenChunk()
  let [manifest, tickets, chunks] = [false, 0, 0]
  for await (const line of readLines(path)) {
    const control = parseControl(line)
    if (!manifest) {
      manifest = true
      yield manifestOf(control)
    } else if (control === null) {
      open.add(line, chunks + 1)
    } else if (control['kind'] === 'chunk') {
      const chunk = open.close(control, chunks + 1)
      whole.update(chunk.lines)
      tickets += chunk.tickets
      chunks += 1
      yield chunk
    } else {
      const sums = { tickets, chunks, sha256: whole.digest('hex') }
      if (!open.isEmpty() || !isEnd(control, sums))
        throw new DamagedFile('the file does not match its own sums')
      return sums
    }
  }
  throw new DamagedFile('the end of the file is missing')
}

/** Collects the ticket lines since the last control line. */
function createOpenChunk() {
  let lines: Buffer[] = []
  let size = 0

  function add(line: Buffer, number: number): void {
    lines.push(line)
    size += line.length
    if (lines.length > maxChunkTickets || size > maxChunkBytes)
      throw new DamagedFile(`chunk ${number} is too large`)
  }

  function close(control: Readonly<Record<string, unknown>>, number: number): Chunk {
    const sha256 = String(control['sha256'])
    const chunk = { lines: Buffer.concat(lines), tickets: lines.length, sha256 }
    if (control['tickets'] !== chunk.tickets || hash('sha256', chunk.lines, 'hex') !== sha256)
      throw new DamagedFile(`chunk ${number} does not match its checksum`)
    ;[lines, size] = [[], 0]
    return chunk
  }

  return { add, close, isEmpty: () => lines.length === 0 }
}

const isEnd = (control: Readonly<Record<string, unknown>>, sums: FileSums): boolean =>
  control['kind'] === 'end' &&
  control['tickets'] === sums.tickets &&
  control['chunks'] === sums.chunks &&
  control['sha256'] === sums.sha256

/** Reads and checks a whole file. Returns its manifest and its sums. */
export async function checkTicketFile(
  path: string,
): Promise<{ manifest: Manifest; sums: FileSums }> {
  const reader = readTicketFile(path)
  const first = await reader.next()
  if (first.done || !('format' in first.value)) throw new DamagedFile('the file has no manifest')
  for (;;) {
    const next = await reader.next()
    if (next.done) return { manifest: first.value, sums: next.value }
  }
}

/** Yields the lines of a compressed file. Throws DamagedFile if it cannot be decompressed. */
export async function* readLines(
  path: string,
  maxBytes: number = maxLineBytes,
): AsyncGenerator<Buffer> {
  let rest: Buffer = Buffer.alloc(0)
  try {
    const plain = path.endsWith('.gz') ? createGunzip() : createZstdDecompress()
    createReadStream(path)
      .on('error', (error) => plain.destroy(error))
      .pipe(plain)
    for await (const data of plain) {
      let chunk: Buffer = rest.length === 0 ? data : Buffer.concat([rest, data])
      for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10)) {
        yield chunk.subarray(0, end + 1)
        chunk = chunk.subarray(end + 1)
      }
      if (chunk.length > maxBytes) throw new DamagedFile('a line is too long')
      rest = chunk
    }
  } catch (error) {
    if (error instanceof DamagedFile || isSystemError(error)) throw error
    throw new DamagedFile(
      `it cannot be decompressed: ${error instanceof Error ? error.message : 'unknown'}`,
      { cause: error },
    )
  }
  if (rest.length > 0) throw new DamagedFile('the last line is cut off')
}

const isSystemError = (error: unknown): boolean => error instanceof Error && 'syscall' in error

// Avoids parsing ticket lines, which are nearly all lines and begin differently.
const controlStart = Buffer.from('{"kind":')

export function parseControl(line: Buffer): Record<string, unknown> | null {
  if (!line.subarray(0, controlStart.length).equals(controlStart)) return null
  try {
    const value: Record<string, unknown> = JSON.parse(line.toString('utf8'))
    return value
  } catch {
    throw new DamagedFile('a line is not JSON')
  }
}

function manifestOf(control: Record<string, unknown> | null): Manifest {
  const { format, version, clientId, from, to, exportedAt } = control ?? {}
  if (format !== 'tollgate-tickets') throw new DamagedFile('this is not a ticket file')
  if (version !== 2)
    throw new DamagedFile(`this ticket file has version ${String(version)}; only 2 can be read`)
  const times = {
    from: typeof from === 'string' ? from : null,
    to: typeof to === 'string' ? to : null,
  }
  return { format, version, clientId: String(clientId), ...times, exportedAt: String(exportedAt) }
}
