import { crc32 } from 'node:zlib'

/**
 * A record of the spool: a header of 24 bytes and one envelope as it came.
 *
 *      0  4  the mark; none of its bytes occurs in UTF-8, so no text holds it
 *      4  4  length of the envelope
 *      8  8  when it was spooled, in milliseconds since 1970
 *     16  4  CRC-32 of the envelope
 *     20  4  CRC-32 of the header up to here
 *
 * The header has a check of its own: a length that can be trusted tells a record that was cut off
 * from one that is broken, and where the next one begins.
 */
export const headerBytes = 24
export const mark = Buffer.from([0xf5, 0xff, 0xc1, 0xfe])
/** Above the largest envelope that is taken. */
const maxLength = 4 * 1024 * 1024

/** Envelopes as records, one behind the other. */
export function frame(envelopes: readonly Buffer[], atMs: number): Buffer {
  const size = envelopes.reduce((sum, { length }) => sum + headerBytes + length, 0)
  const bytes = Buffer.allocUnsafe(size)
  let at = 0
  for (const envelope of envelopes) {
    mark.copy(bytes, at)
    bytes.writeUInt32LE(envelope.length, at + 4)
    bytes.writeDoubleLE(atMs, at + 8)
    bytes.writeUInt32LE(crc32(envelope), at + 16)
    bytes.writeUInt32LE(crc32(bytes.subarray(at, at + 20)), at + 20)
    envelope.copy(bytes, at + headerBytes)
    at += headerBytes + envelope.length
  }
  return bytes
}

export type Found =
  | {
      readonly kind: 'record'
      readonly envelope: Buffer
      readonly atMs: number
      readonly next: number
    }
  /** The bytes end before it does, but for the rest it is a record so far. */
  | { readonly kind: 'short'; readonly needs: number }
  /** No record; `next` is where one may follow, when its header tells. */
  | { readonly kind: 'broken'; readonly next: number | null }

const broken = { kind: 'broken', next: null } as const

/** What stands at `at`. The envelope is a view of `bytes`. */
export function recordAt(bytes: Buffer, at: number): Found {
  const left = bytes.length - at
  if (left < headerBytes) {
    const begun = Math.min(left, mark.length)
    const isMark = bytes.compare(mark, 0, begun, at, at + begun) === 0
    return isMark ? { kind: 'short', needs: headerBytes } : broken
  }
  if (!isHeader(bytes, at)) return broken
  const length = bytes.readUInt32LE(at + 4)
  const next = at + headerBytes + length
  if (next > bytes.length) return { kind: 'short', needs: headerBytes + length }
  const envelope = bytes.subarray(at + headerBytes, next)
  if (crc32(envelope) !== bytes.readUInt32LE(at + 16)) return { kind: 'broken', next }
  return { kind: 'record', envelope, atMs: bytes.readDoubleLE(at + 8), next }
}

/** True when a whole header stands at `at`. */
export function isHeader(bytes: Buffer, at: number): boolean {
  return (
    at + headerBytes <= bytes.length &&
    bytes.compare(mark, 0, mark.length, at, at + mark.length) === 0 &&
    bytes.readUInt32LE(at + 4) <= maxLength &&
    crc32(bytes.subarray(at, at + 20)) === bytes.readUInt32LE(at + 20)
  )
}
