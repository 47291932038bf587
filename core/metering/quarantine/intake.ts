import { hash } from 'node:crypto'
import { authId } from '../../platform/ids.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import type { Db } from '../../lib/sql.ts'
import type { BatchProblem } from '../batch/batch.ts'
import { maxEventBytes, parseEvent } from '../events/parse.ts'
import * as store from './store.ts'
import type { Problem, QuarantineReason, StreamRecord } from '../types.ts'

/** How events that cannot be tickets come into quarantine. */

interface At {
  readonly records: readonly StreamRecord[]
  readonly index: number
  readonly at: Date
}

/** A problem with an event whatever it is: its identity and its amount are read from its bytes, as far as they tell. */
export function ticketProblem(
  { records, index, at }: At,
  of: Pick<Problem, 'reason' | 'detail'>,
): BatchProblem {
  const record = records[index]
  const parsed = record && parseEvent(record.bytes, at)
  if (parsed?.kind !== 'ticket')
    return { index, problem: { ...of, eventId: null, authId: null, fee: null } }
  const { eventId, clientId, externalUserId, fee } = parsed.ticket
  return { index, problem: { ...of, eventId, authId: authId(clientId, externalUserId), fee } }
}

export const unknownClient = {
  reason: 'unknown_client',
  detail: 'no app has this client id',
} as const

export const sameIdOtherBytes = {
  reason: 'same_id_other_bytes',
  detail: 'another event came under this id before; that one stands',
} as const

interface Quarantining {
  readonly records: readonly StreamRecord[]
  readonly problems: readonly BatchProblem[]
  readonly at: Date
}

/** Keeps events with their bytes and what is wrong with them. */
export async function quarantine(db: Db, { records, problems, at }: Quarantining): Promise<void> {
  const rows = problems.flatMap(({ index, problem }): store.NewQuarantined[] => {
    const record = records[index]
    if (!record) return []
    const { bytes, source, partition, offset } = record
    return [
      {
        ...problem,
        id: uuidV7(at.getTime()),
        digest: hash('sha256', bytes, 'hex'),
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

export function countReasons(problems: readonly BatchProblem[]): Map<QuarantineReason, number> {
  const counts = new Map<QuarantineReason, number>()
  for (const { problem } of problems)
    counts.set(problem.reason, (counts.get(problem.reason) ?? 0) + 1)
  return counts
}
