import { hash } from 'node:crypto'
import { authId } from '../../shared/ids.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import type { Db } from '../../lib/sql.ts'
import type { RecordProblem } from '../batch/parsed-batch.ts'
import {
  type EventProblem,
  type QuarantineReason,
  foldEvent,
  maxEventBytes,
  noLimits,
  parseEvent,
} from '../events/parse.ts'
import { describeError } from './poison.ts'
import type { StreamRecord } from '../events/record.ts'
import * as store from './store.ts'

/** Puts events that cannot become tickets into quarantine. */

interface RecordAt {
  readonly records: readonly StreamRecord[]
  readonly index: number
  readonly at: Date
}

/**
 * Describes a problem of an event that is valid by itself. Parses its bytes again for its id, user
 * and fee.
 */
export function ticketProblem(
  { records, index, at }: RecordAt,
  problem: Pick<EventProblem, 'reason' | 'detail'>,
): RecordProblem {
  const record = records[index]
  const parsed = record && parseEvent(record.bytes, at, noLimits)
  if (parsed?.kind !== 'ticket')
    return { index, problem: { ...problem, eventId: null, authId: null, fee: null } }
  const { eventId, clientId, externalUserId, fee } = parsed.ticket
  return { index, problem: { ...problem, eventId, authId: authId(clientId, externalUserId), fee } }
}

export const unknownClient = {
  reason: 'unknown_client',
  detail: 'no app has this client id',
} as const

export const sameIdOtherBytes = {
  reason: 'same_id_other_bytes',
  detail: 'an earlier event with this id was accepted and stays valid',
} as const

/** Describes a ticket that the database rejected with `error`, in a part of `count` tickets. */
export const refusedTicket = (
  error: unknown,
  count: number,
): Pick<EventProblem, 'reason' | 'detail'> => ({
  reason: 'rejected_by_database',
  detail:
    count === 1
      ? describeError(error)
      : `${describeError(error)}; refused with ${count - 1} others of its app and not tried alone; redrive it`,
})

interface Quarantining {
  readonly records: readonly StreamRecord[]
  readonly problems: readonly RecordProblem[]
  readonly at: Date
}

/** Stores events with their bytes and problems. */
export async function quarantine(db: Db, { records, problems, at }: Quarantining): Promise<void> {
  const rows = problems.flatMap(({ index, problem }): store.NewQuarantineEntry[] => {
    const record = records[index]
    if (!record) return []
    const { bytes, source, partition, offset } = record
    return [
      {
        ...problem,
        id: uuidV7(at.getTime()),
        digest: hash('sha256', foldEvent(bytes, problem.eventId ?? ''), 'hex'),
        source,
        partition,
        offset,
        bytes: bytes.subarray(0, maxEventBytes),
        byteCount: bytes.length,
      },
    ]
  })
  await store.insertQuarantined(db, rows, at)
}

/** Counts the records by reason. */
export function countReasons(problems: readonly RecordProblem[]): Map<QuarantineReason, number> {
  const counts = new Map<QuarantineReason, number>()
  for (const { problem } of problems)
    counts.set(problem.reason, (counts.get(problem.reason) ?? 0) + 1)
  return counts
}
