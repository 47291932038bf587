import { DomainError } from '../../../proto/errors.ts'
import { type DecisionId, parseDecisionId } from '../../../proto/decision-id.ts'
import { type AppId, isClientId } from '../../shared/ids.ts'
import { addSeconds } from '../../lib/time.ts'
import { deleteInBatches } from '../../shared/upkeep.ts'
import type { Shared } from '../../shared/shared.ts'
import { type DecisionRecord, toJson } from './record.ts'
import * as store from './store.ts'

const retentionDays = 7
const retentionSeconds = retentionDays * 86_400
/** Decisions kept per app, and for credentials that lead to no app. */
const recordsMax = 10_000
const batchMax = 500
const listMax = 100
const listDefault = 20

type Deps = Pick<Shared, 'pool' | 'now'> & {
  /** For tests. */
  readonly max?: number
}

/** Stores the decisions of sidecars for seven days, up to a maximum per app. */
export function createDecisions({ pool, now, max = recordsMax }: Deps) {
  // Apps with new decisions in this process since it last deleted the oldest.
  let grown = new Set<AppId | null>()

  /** Stores records, each once. Throws REQUEST_INVALID when an id is not ours. */
  async function record(records: readonly DecisionRecord[]): Promise<void> {
    if (records.length > batchMax)
      throw new DomainError('REQUEST_INVALID', `at most ${batchMax} decisions at a time`)
    if (records.some(({ id }) => parseDecisionId(id) === null))
      throw new DomainError('REQUEST_INVALID', 'a decision has no valid id')
    const rows = records.map((decision) => ({
      id: decision.id,
      clientId: clientIdOf(decision),
      json: toJson(decision),
    }))
    for (const app of await store.insertDecisions(pool, rows, now())) grown.add(app)
  }

  /**
   * Returns a decision about a user of the app; null allows any app. The message of NOT_FOUND
   * explains why the record is missing.
   */
  async function find(id: string, app: AppId | null): Promise<DecisionRecord> {
    const parsed = parseDecisionId(id)
    if (!parsed) throw new DomainError('NOT_FOUND', 'a decision id must have 24 hexadecimal digits')
    const decision = await store.findDecision(pool, id, app)
    if (!decision) throw new DomainError('NOT_FOUND', absence(parsed, now()))
    return decision
  }

  /** Returns the newest decisions of a filter, at most a hundred. */
  async function list(filter: store.DecisionFilter, limit: number): Promise<DecisionRecord[]> {
    if (limit > listMax) throw new DomainError('REQUEST_INVALID', `limit: at most ${listMax}`)
    const texts = [filter.clientId, filter.externalUserId, filter.code]
    if (texts.some((text) => text !== null && unstorable.test(text))) return []
    return store.listDecisions(pool, filter, limit || listDefault)
  }

  async function deleteOld(): Promise<void> {
    const apps = grown
    grown = new Set()
    const before = addSeconds(now(), -retentionSeconds)
    await deleteInBatches((limit) => store.deleteRecordedBefore(pool, before, limit))
    for (const app of apps)
      await deleteInBatches((limit) => store.deleteOldest(pool, app, { max, limit }))
  }

  return { record, find, list, deleteOld }
}

export type Decisions = ReturnType<typeof createDecisions>

// Postgres rejects such text, so no record contains it.
const unstorable = /\p{Cc}|\p{Cs}/u

// A token of another issuer may have any text as its client.
const clientIdOf = ({ credential: { clientId } }: DecisionRecord): string | null =>
  clientId !== undefined && isClientId(clientId) ? clientId : null

// Uses only information from the id itself, so that the caller learns nothing about other apps'
// decisions.
function absence({ second, isRecorded }: DecisionId, at: Date): string {
  const instant = new Date(second * 1000)
  if (!isRecorded)
    return `the decision of ${instant.toISOString()} was not recorded: its sidecar had more to record than DECISION_RECORDS_PER_SECOND, or core did not accept it`
  if (addSeconds(instant, retentionSeconds) <= at)
    return `records are kept for ${retentionDays} days, and this decision is of ${instant.toISOString()}`
  return 'there is no record of this decision; sidecars send records once a second, and a killed sidecar may have lost its last ones'
}
