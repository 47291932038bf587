import { randomBytes } from 'node:crypto'

/**
 * The id of a decision: 24 hexadecimal digits. Eight are its second, which shows whether its record
 * has expired. One shows whether the sidecar recorded the decision. Fifteen are random, because a
 * counter would reveal to one tenant how often others are refused.
 */
export interface DecisionId {
  /** Unix seconds. */
  readonly second: number
  /** False if recording it would have exceeded the sidecar's limit. */
  readonly isRecorded: boolean
}

const syntax = /^[0-9a-f]{24}$/
const recorded = '0'
const omitted = '1'

const randomDigits = 15
const poolBytes = 4_096
let pool = ''
let used = 0
let latest = { second: -1, text: '' }

/**
 * Returns a new id for a decision at `ms` (Unix milliseconds). Random digits are generated for many
 * ids at once, because every refusal has an id.
 */
export function newDecisionId(ms: number, isRecorded: boolean): string {
  if (used + randomDigits > pool.length) {
    pool = randomBytes(poolBytes).toString('hex')
    used = 0
  }
  const second = Math.floor(ms / 1000)
  if (second !== latest.second) latest = { second, text: second.toString(16).padStart(8, '0') }
  const random = pool.slice(used, used + randomDigits)
  used += randomDigits
  return latest.text + (isRecorded ? recorded : omitted) + random
}

/** Parses an id; null if it is invalid. */
export function parseDecisionId(id: string): DecisionId | null {
  return syntax.test(id)
    ? { second: parseInt(id.slice(0, 8), 16), isRecorded: id[8] === recorded }
    : null
}
