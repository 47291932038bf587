import { randomBytes } from 'node:crypto'

/**
 * The id of a decision: 24 hexadecimal digits. Eight are its second, so that an id tells whether its
 * record has expired. One says whether the sidecar recorded it. Fifteen are random: a count would tell
 * one tenant how often others are refused.
 */
export interface DecisionId {
  /** Unix seconds. */
  readonly second: number
  /** False when more was to be recorded than the sidecar's limit. */
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

/** A new id for a decision at `ms`, Unix milliseconds. Every refusal has one: digits are made for many at once. */
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

/** What an id says; null when it is none. */
export function parseDecisionId(id: string): DecisionId | null {
  return syntax.test(id)
    ? { second: parseInt(id.slice(0, 8), 16), isRecorded: id[8] === recorded }
    : null
}
