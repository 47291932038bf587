import type { Log } from '../../core/lib/log.ts'
import { type Reloadable, currentValue } from '../../core/lib/settings/reloadable.ts'
import { newDecisionId } from '../../proto/decision-id.ts'
import type { Decision as DecisionRecord } from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import type { Decision } from '../authorize/decision.ts'
import type {
  ExplainedAnswer,
  Explanations,
  FreshDecision,
  Occasion,
} from '../authorize/webhook.ts'
import type { AuthorizeBody } from '../decision/request.ts'
import type { SidecarMetrics } from '../metrics.ts'
import { createAdmission } from './admission.ts'
import { type RecordedDecision, toIdentity } from './decision-record.ts'
import type { RecordQueue } from './record-queue.ts'

export interface RecordLimits {
  /** Maximum records per second. */
  readonly perSecond: number
  /** Records one in `sample` permissions; 0 disables sampling. */
  readonly sample: number
}

export interface ExplanationsOptions {
  readonly recordOf: (recorded: RecordedDecision) => DecisionRecord
  readonly queue: Pick<RecordQueue, 'add' | 'isFull'>
  readonly limits: Reloadable<RecordLimits>
  readonly metrics: Pick<SidecarMetrics, 'countRecords'>
  /** Unix milliseconds. */
  readonly clock: () => number
  readonly log: Log
}

/** Records why calls were refused, and some that were allowed (docs/sidecars.md). */
export function createExplanations(options: ExplanationsOptions): Explanations {
  const { recordOf, queue, limits, metrics, clock, log } = options
  const admission = createAdmission({ perSecond: () => currentValue(limits).perSecond })
  let permissions = 0

  function occasionOf(decision: Decision, body: AuthorizeBody | null): Occasion | null {
    if (decision.status !== 200) return 'refusal'
    if (body?.wantsExplanation) return 'request'
    const { sample } = currentValue(limits)
    if (sample === 0 || ++permissions < sample) return null
    permissions = 0
    return 'sample'
  }

  function explain({ decision, body, ms }: FreshDecision, occasion: Occasion): ExplainedAnswer {
    const at = clock()
    const clientId = toIdentity(decision)?.clientId ?? ''
    const isRecorded = !queue.isFull() && admission.admit(decision.code, clientId, at)
    const id = newDecisionId(at, isRecorded)
    if (isRecorded) record({ id, occasion, at, ms, decision, body })
    else metrics.countRecords('omitted', 1)
    const member = `,"decision":"${id}"}`
    return { id, body: decision.body.slice(0, -1) + member }
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
