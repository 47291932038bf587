import { randomBytes } from 'node:crypto'
import { rename, rm, stat } from 'node:fs/promises'

/** The file differs from what was written; the message has the position. */
export class DamagedFile extends Error {}

/**
 * Writes a file under another name and renames it when `write` is done, so that a file with this
 * name is whole. Removes it if `write` fails.
 */
export async function writeWhole<T>(file: string, write: (part: string) => Promise<T>): Promise<T> {
  const part = `${file}.${randomBytes(4).toString('hex')}.part`
  try {
    const result = await write(part)
    await rename(part, file)
    return result
  } catch (error) {
    await rm(part, { force: true })
    throw error
  }
}

/** Throws if the file exists, unless `isReplaced`. */
export async function requireAbsent(file: string, isReplaced: boolean): Promise<void> {
  const isPresent = await stat(file).then(
    () => true,
    () => false,
  )
  if (isPresent && !isReplaced) throw new Error(`${file} exists; --force replaces it`)
}
