import type { Log } from '../../core/lib/log.ts'
import { newDecisionId } from '../../proto/decision-id.ts'
import type { Decision as DecisionRecord } from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import type { Decision } from '../authorize/decision.ts'
import type { AuthorizeBody } from '../authorize/request.ts'
import type { SidecarMetrics } from '../metrics.ts'
import { createAdmission } from './admission.ts'
import { type RecordedDecision, toIdentity } from './decision-record.ts'
import type { RecordQueue } from './record-queue.ts'

export interface ExplanationsOptions {
  readonly recordOf: (recorded: RecordedDecision) => DecisionRecord
  readonly queue: Pick<RecordQueue, 'add' | 'isFull'>
  /** Maximum records per second. */
  readonly perSecond: number
  /** Records one in `sample` permissions; 0 disables sampling. */
  readonly sample: number
  readonly metrics: Pick<SidecarMetrics, 'countRecords'>
  /** Unix milliseconds. */
  readonly clock: () => number
  readonly log: Log
}

/** A decision that was just made. */
export interface FreshDecision {
  readonly decision: Decision
  /** Null for a request that was not read. */
  readonly body: AuthorizeBody | null
  readonly ms: number
}

/** An answer with the id of its decision. */
export interface ExplainedAnswer {
  readonly id: string
  readonly body: string
  readonly bytes: number
}

/** Records why calls were refused, and some that were allowed (docs/sidecars.md). */
export function createExplanations(options: ExplanationsOptions) {
  const { recordOf, queue, sample, metrics, clock, log } = options
  const admission = createAdmission({ perSecond: options.perSecond })
  let permissions = 0

  /** Returns why the decision is to be recorded; null for most permissions. */
  function occasionOf(decision: Decision, body: AuthorizeBody | null): Occasion | null {
    if (decision.status !== 200) return 'refusal'
    if (body?.wantsExplanation) return 'request'
    if (sample === 0 || ++permissions < sample) return null
    permissions = 0
    return 'sample'
  }

  /** Records the decision if the limit permits it, and adds its id to the answer. */
  function explain({ decision, body, ms }: FreshDecision, occasion: Occasion): ExplainedAnswer {
    const at = clock()
    const clientId = toIdentity(decision)?.clientId ?? ''
    const isRecorded = !queue.isFull() && admission.admit(decision.code, clientId, at)
    const id = newDecisionId(at, isRecorded)
    if (isRecorded) record({ id, occasion, at, ms, decision, body })
    else metrics.countRecords('omitted', 1)
    const member = `,"decision":"${id}"}`
    return {
      id,
      body: decision.body.slice(0, -1) + member,
      bytes: decision.bytes - 1 + member.length,
    }
  }

  // A failure to record must not change the decision.
  function record(recorded: RecordedDecision): void {
    try {
      queue.add(recordOf(recorded))
    } catch (error) {
      metrics.countRecords('omitted', 1)
      log.error({ err: error }, 'a decision could not be recorded')
    }
  }

  return { occasionOf, explain }
}

type Occasion = RecordedDecision['occasion']

export type Explanations = ReturnType<typeof createExplanations>
