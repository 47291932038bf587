import { type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'

/** A place in the spool: a segment by its number, and a byte of it. */
export interface Place {
  readonly segment: number
  readonly offset: number
}

const size = 20

/**
 * Up to where core has acknowledged, kept in a file. It is not forced to disk: after a power cut an
 * older place is read, and what comes again is a duplicate by its id.
 */
export async function openPosition(directory: string) {
  const path = join(directory, 'position')
  const file = await open(path, 'r+').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return open(path, 'w+', 0o600)
    throw error
  })
  const start = await read(file)

  async function save({ segment, offset }: Place): Promise<void> {
    const bytes = Buffer.alloc(size)
    bytes.writeDoubleLE(segment, 0)
    bytes.writeDoubleLE(offset, 8)
    bytes.writeUInt32LE(crc32(bytes.subarray(0, 16)), 16)
    await file.write(bytes, 0, size, 0)
  }

  return { start, save, close: () => file.close() }
}

export type Position = Awaited<ReturnType<typeof openPosition>>

/** The beginning of everything when the file is new, or was torn. */
async function read(file: FileHandle): Promise<Place> {
  const bytes = Buffer.alloc(size)
  const { bytesRead } = await file.read(bytes, 0, size, 0)
  const isWhole = bytesRead === size && crc32(bytes.subarray(0, 16)) === bytes.readUInt32LE(16)
  return isWhole
    ? { segment: bytes.readDoubleLE(0), offset: bytes.readDoubleLE(8) }
    : { segment: 0, offset: 0 }
}
