import { isObject } from '../../lib/json.ts'
import { DamagedFile } from '../../lib/files/whole-file.ts'
import { type FileSize, readSealed, writeSealed } from './sealed-file.ts'

/**
 * The content of a backup: records, each with its kind (one byte) and length before it. The
 * manifest comes first; each table has its name and columns, its rows in PostgreSQL's text format
 * of COPY, and their number; the end has the sequences.
 */
export interface BackupManifest {
  /** The release that wrote the file. */
  readonly release: string
  /** Every migration of the database, in their order. */
  readonly migrations: readonly string[]
  /** The instant of the snapshot, by the clock of the database. */
  readonly at: string
  readonly ticketMonths: readonly string[]
  /** The next transaction id of the cluster. */
  readonly transaction: string
  /** Origin of the platform, if it was set when the backup was made. */
  readonly publicUrl: string | null
  /** Key-encryption keys and peppers of the deployment, with which its secrets are stored. */
  readonly sealingSecrets: readonly string[]
  readonly peppers: Readonly<Record<string, string>>
}

/** A sequence with the last value that it returned. */
export interface SequenceState {
  readonly name: string
  readonly last: string
}

export type BackupRecord =
  | { readonly kind: 'manifest'; readonly manifest: BackupManifest }
  | { readonly kind: 'table'; readonly name: string; readonly columns: readonly string[] }
  | { readonly kind: 'rows'; readonly bytes: Buffer }
  | { readonly kind: 'tableEnd'; readonly rows: number }
  | { readonly kind: 'end'; readonly tables: number; readonly sequences: readonly SequenceState[] }

const control = 'C'.charCodeAt(0)
const data = 'D'.charCodeAt(0)
const recordMaxBytes = 64 * 1024 * 1024
const sliceBytes = 1024 * 1024

export const writeBackupFile = (
  path: string,
  passphrase: string,
  records: AsyncIterable<BackupRecord>,
): Promise<FileSize> => writeSealed(path, passphrase, toBytes(records))

async function* toBytes(records: AsyncIterable<BackupRecord>): AsyncGenerator<Buffer> {
  for await (const record of records) {
    if (record.kind !== 'rows') {
      yield* framed(control, Buffer.from(JSON.stringify(record)))
      continue
    }
    const { bytes } = record
    for (let from = 0; from < bytes.length; from += sliceBytes)
      yield* framed(data, bytes.subarray(from, from + sliceBytes))
  }
}

function* framed(kind: number, payload: Buffer): Generator<Buffer> {
  const head = Buffer.alloc(5)
  head[0] = kind
  head.writeUInt32BE(payload.length, 1)
  yield head
  yield payload
}

/** Yields the records of a file. Throws DamagedFile or WrongPassphrase at the first fault. */
export async function* readBackupFile(
  path: string,
  passphrase: string,
): AsyncGenerator<BackupRecord> {
  let rest: Buffer = Buffer.alloc(0)
  let last: BackupRecord['kind'] | null = null
  for await (const chunk of readSealed(path, passphrase)) {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    for (let size = sizeOf(rest); size !== null && rest.length >= size; size = sizeOf(rest)) {
      const record = recordOf(rest.subarray(0, size))
      rest = rest.subarray(size)
      last = record.kind
      yield record
    }
  }
  if (rest.length > 0 || last !== 'end') throw new DamagedFile('its content is not whole')
}

/** The bytes of the first record, with its head; null if the head is not there yet. */
function sizeOf(bytes: Buffer): number | null {
  if (bytes.length < 5) return null
  const length = bytes.readUInt32BE(1)
  if (length > recordMaxBytes) throw new DamagedFile('a record is too large')
  return 5 + length
}

function recordOf(bytes: Buffer): BackupRecord {
  const payload = bytes.subarray(5)
  if (bytes[0] === data) return { kind: 'rows', bytes: payload }
  if (bytes[0] !== control) throw new DamagedFile('a record has no kind')
  const record: unknown = JSON.parse(payload.toString('utf8'))
  if (!isRecord(record)) throw new DamagedFile('a record is not whole')
  return record
}

// The passphrase authenticates every byte, so that a whole file was written by this code.
const isRecord = (value: unknown): value is Exclude<BackupRecord, { readonly kind: 'rows' }> =>
  isObject(value) && ['manifest', 'table', 'tableEnd', 'end'].includes(String(value['kind']))
