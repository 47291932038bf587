import { type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import type { LogPosition } from './segments.ts'

/** A position with the number of the event there; null when the number is unknown. */
export interface NumberedPosition extends LogPosition {
  readonly sequence: number | null
}

const positionBytes = 28
/** A position in the format without event numbers. */
const plainPositionBytes = 20
const acknowledgedAt = 32
const acknowledgedBytes = 12

/**
 * Opens the file with the position up to which core has acknowledged events, and the number below
 * which all events were acknowledged to their senders. It is not forced to disk: after a power cut
 * older values are read, and events that are sent again are dropped as duplicates by their id.
 */
export async function openCheckpoint(directory: string) {
  const path = join(directory, 'position')
  const file = await open(path, 'r+').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return open(path, 'w+', 0o600)
    throw error
  })
  const start = await readPosition(file)
  const acknowledgedBelow = await readAcknowledged(file)

  async function save({ segment, offset, sequence }: NumberedPosition): Promise<void> {
    const bytes = Buffer.alloc(positionBytes)
    bytes.writeDoubleLE(segment, 0)
    bytes.writeDoubleLE(offset, 8)
    bytes.writeDoubleLE(sequence ?? 0, 16)
    bytes.writeUInt32LE(crc32(bytes.subarray(0, 24)), 24)
    await file.write(bytes, 0, positionBytes, 0)
  }

  async function saveAcknowledged(below: number): Promise<void> {
    const bytes = Buffer.allocUnsafe(acknowledgedBytes)
    bytes.writeDoubleLE(below, 0)
    bytes.writeUInt32LE(crc32(bytes.subarray(0, 8)), 8)
    await file.write(bytes, 0, acknowledgedBytes, acknowledgedAt)
  }

  return { start, acknowledgedBelow, save, saveAcknowledged, close: () => file.close() }
}

export type Checkpoint = Awaited<ReturnType<typeof openCheckpoint>>

/** Returns the start of the spool when the file is new or torn. */
async function readPosition(file: FileHandle): Promise<NumberedPosition> {
  const bytes = await readWhole(file, 0, positionBytes)
  const segment = bytes.readDoubleLE(0)
  const offset = bytes.readDoubleLE(8)
  if (isSound(bytes)) return { segment, offset, sequence: bytes.readDoubleLE(16) || null }
  if (isSound(bytes.subarray(0, plainPositionBytes))) return { segment, offset, sequence: null }
  return { segment: 0, offset: 0, sequence: null }
}

async function readAcknowledged(file: FileHandle): Promise<number | null> {
  const bytes = await readWhole(file, acknowledgedAt, acknowledgedBytes)
  return isSound(bytes) ? bytes.readDoubleLE(0) || null : null
}

/** Pads with zeros beyond the end of the file; zeros never have a valid checksum. */
async function readWhole(file: FileHandle, at: number, length: number): Promise<Buffer> {
  const bytes = Buffer.alloc(length)
  await file.read(bytes, 0, length, at)
  return bytes
}

/** Whether the last four bytes are the checksum of the others. */
function isSound(bytes: Buffer): boolean {
  const length = bytes.length - 4
  return crc32(bytes.subarray(0, length)) === bytes.readUInt32LE(length)
}
