import { DomainError } from '../../../proto/errors.ts'
import { type DecisionId, parseDecisionId } from '../../../proto/decision-id.ts'
import { type AppId, isClientId } from '../../platform/ids.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { deleteInBatches } from '../../platform/upkeep.ts'
import { type DecisionRecord, toJson } from './record.ts'
import * as store from './store.ts'

const retentionDays = 7
const retentionSeconds = retentionDays * 86_400
/** Decisions kept of each app, and as many of credentials that led to none. */
const recordsMax = 10_000
const batchMax = 500
const listMax = 100
const listDefault = 20

export interface DecisionsDeps {
  readonly pool: Pool
  readonly now: Now
  /** For tests. */
  readonly max?: number
}

/** Keeps why sidecars decided as they did: for seven days, and so many of each app. */
export function createDecisions({ pool, now, max = recordsMax }: DecisionsDeps) {
  // Apps whose decisions this process has added to since it last deleted the oldest.
  let grown = new Set<AppId | null>()

  /** Stores records, each once. REQUEST_INVALID when one has no id of ours. */
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

  /** A decision about a user of the app, or any for null. NOT_FOUND says why there is none. */
  async function find(id: string, app: AppId | null): Promise<DecisionRecord> {
    const parsed = parseDecisionId(id)
    if (!parsed)
      throw new DomainError('NOT_FOUND', 'a decision id has 24 hexadecimal digits; this is none')
    const decision = await store.findDecision(pool, id, app)
    if (!decision) throw new DomainError('NOT_FOUND', absence(parsed, now()))
    return decision
  }

  /** The newest decisions of a filter, at most a hundred. */
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

// Postgres takes no such text; no record holds it.
const unstorable = /\p{Cc}|\p{Cs}/u

// A token of another issuer may name anything as its client.
const clientIdOf = ({ credential: { clientId } }: DecisionRecord): string | null =>
  clientId !== undefined && isClientId(clientId) ? clientId : null

// Says only what the id itself says, so that nobody learns of decisions about others.
function absence({ second, isRecorded }: DecisionId, at: Date): string {
  const instant = new Date(second * 1000)
  if (!isRecorded)
    return `the decision of ${instant.toISOString()} was not recorded: its sidecar had more to record than DECISION_RECORDS_PER_SECOND, or core did not take it`
  if (addSeconds(instant, retentionSeconds) <= at)
    return `records are kept for ${retentionDays} days, and this decision is of ${instant.toISOString()}`
  return 'there is no record of this decision; sidecars send theirs once a second, and one that was killed may not have'
}
