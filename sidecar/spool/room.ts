import { DomainError } from '../../proto/errors.ts'
import type { Log } from '../../core/lib/log.ts'

export interface RoomOptions {
  readonly maxBytes: number
  readonly usedBytes: () => number
  /** Writes a little to the disk and removes it again; throws while that cannot be done. */
  readonly probe: () => Promise<void>
  readonly log: Log
}

const roomy = 0.9
const probeEveryMs = 1_000
const fullCodes = new Set(['ENOSPC', 'EDQUOT', 'EFBIG'])

/** Says whether the spool may grow, and remembers while it may not. */
export function createRoom({ maxBytes, usedBytes, probe, log }: RoomOptions) {
  let reserved = 0
  let full: 'limit' | 'disk' | null = null
  let timer: NodeJS.Timeout | null = null

  /** Takes room for bytes that are to be written. Throws SPOOL_UNAVAILABLE when there is none. */
  function reserve(bytes: number): void {
    if (usedBytes() + reserved + bytes > maxBytes) {
      refuse('limit')
      throw new DomainError(
        'SPOOL_UNAVAILABLE',
        'the spool is full: core has not taken its events yet; send these again later',
      )
    }
    reserved += bytes
  }

  const settle = (bytes: number): void => void (reserved -= bytes)

  function refuse(why: 'limit' | 'disk'): void {
    if (full !== why) {
      log.error({ why, usedBytes: usedBytes(), maxBytes }, 'the spool is full: pushes are refused')
    }
    full = why
    if (why === 'disk') timer ??= setInterval(() => void look(), probeEveryMs).unref()
  }

  /** What the sender is told about a write that failed. */
  function failed(error: unknown): DomainError {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
    refuse('disk')
    const isFull = fullCodes.has(code)
    const what = isFull ? 'the disk of the spool is full' : 'the spool cannot be written'
    return new DomainError('SPOOL_UNAVAILABLE', `${what} (${code}); send the events again later`, {
      cause: error,
    })
  }

  // Nobody may be sending any more to a sidecar that says it is not ready.
  async function look(): Promise<void> {
    await probe().then(
      () => over('disk'),
      () => {},
    )
  }

  function over(why: 'limit' | 'disk'): void {
    if (full !== why) return
    full = null
    if (timer) clearInterval(timer)
    timer = null
    log.info({ usedBytes: usedBytes(), maxBytes }, 'the spool takes events again')
  }

  /** After a write, and after something was removed. */
  function changed(): void {
    if (full === 'limit' && usedBytes() + reserved <= maxBytes * roomy) over('limit')
  }

  const stop = (): void => void (timer && clearInterval(timer))

  const wrote = (): void => over('disk')
  const isFull = (): boolean => full !== null

  return { reserve, settle, failed, changed, wrote, isFull, stop }
}

export type Room = ReturnType<typeof createRoom>
