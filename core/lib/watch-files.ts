import { statSync } from 'node:fs'
import { setInterval } from 'node:timers'

const pollMs = 1_000

/**
 * Calls `onChange` within about two seconds after files have changed, when they have stayed the same
 * for a poll, so that a pair which is being replaced is read once. A file that cannot be read has
 * changed, too. Returns a function that stops it.
 */
export function watchFiles(
  paths: readonly (string | undefined)[],
  onChange: () => void,
): () => void {
  const files = paths.filter((path) => path !== undefined)
  let used = versionOf(files)
  let seen = used
  const timer = setInterval(() => {
    const version = versionOf(files)
    const isStable = version === seen
    seen = version
    if (!isStable || version === used) return
    used = version
    onChange()
  }, pollMs)
  timer.unref()
  return () => clearInterval(timer)
}

const versionOf = (paths: readonly string[]): string =>
  paths
    .map((path) => {
      try {
        // ctime also changes when a file becomes readable.
        const { mtimeMs, ctimeMs, size, ino } = statSync(path)
        return `${mtimeMs} ${ctimeMs} ${size} ${ino}`
      } catch (error) {
        return String(error)
      }
    })
    .join(' ')

/** A one-line error for a file that the setting names and that cannot be used. */
export function unusableFile(setting: string, path: string, error: unknown): Error {
  const why = error instanceof Error ? error.message.split(',')[0] : String(error)
  return new Error(`${setting}: cannot use ${path} (${why})`, { cause: error })
}
