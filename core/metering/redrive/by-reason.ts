import { DomainError } from '../../../proto/errors.ts'
import type { Log } from '../../lib/log.ts'
import { isUnavailable } from '../../lib/sql.ts'
import type { Author } from './author.ts'
import type { Quarantine } from './quarantine.ts'

export interface ReasonRequest {
  readonly reason: string
  readonly underNewId: boolean
  readonly cursor?: string | undefined
  readonly author: Author
  readonly signal: AbortSignal
  readonly log: Log
}

export interface ReasonProgress {
  readonly redriven: number
  /** Events that still cannot become tickets. */
  readonly left: readonly { readonly id: string; readonly problem: string }[]
  readonly nextCursor: string | undefined
}

/** A page is short, because a call that reached its end of time still finishes its page. */
const pageSize = 20
const callMs = 3_000

/**
 * Redrives open events with a reason, page by page, until a few seconds have passed or the caller
 * has disconnected. Continue with `nextCursor`.
 */
export async function redriveReason(
  quarantine: Pick<Quarantine, 'list' | 'redrive'>,
  { reason, author, underNewId, signal, log, ...request }: ReasonRequest,
): Promise<ReasonProgress> {
  const end = performance.now() + callMs
  const left: { id: string; problem: string }[] = []
  let redriven = 0
  /** Returns why the event stays in quarantine; null if it became a ticket. */
  const problemOf = async (id: string, redrive: () => Promise<unknown>): Promise<string | null> => {
    try {
      await redrive()
      return null
    } catch (error) {
      if (error instanceof DomainError && error.reason !== 'UNAVAILABLE') return error.message
      // One event that always fails must not keep back the others of its reason.
      if (error instanceof DomainError || isUnavailable(error)) throw error
      log.error({ err: error, quarantineId: id }, 'redriving an event failed')
      return 'core failed; its log has the error'
    }
  }
  for (let { cursor } = request; ;) {
    const { events, nextCursor } = await quarantine.list({ reason, cursor, limit: pageSize })
    for (const { id } of events) {
      const problem = await problemOf(id, () => quarantine.redrive({ id, underNewId }, author))
      if (problem === null) redriven += 1
      else left.push({ id, problem })
    }
    cursor = nextCursor
    if (cursor === undefined || signal.aborted || performance.now() > end)
      return { redriven, left, nextCursor: cursor }
  }
}
