import { DomainError } from '../../../proto/errors.ts'
import { microsThatAddUp } from '../../lib/money.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, parseInstant } from '../../lib/time.ts'
import type { Dimension, Meter, MeterName } from '../../metering/backend/catalog.ts'
import type { BackendApi } from '../../metering/backend/module.ts'
import type { Read } from '../../shared/database/replica.ts'
import type { Clocks } from '../../shared/clocks/clocks.ts'
import type { UserCaller } from '../../rpc/callers.ts'
import { type Key, sumsBy } from '../store.ts'
import type { UsageRow } from '../types.ts'

export interface MetersDeps extends Pick<BackendApi, 'meters' | 'requireAnswers'> {
  readonly pool: Pool
  readonly read: Read
  readonly clocks: Clocks
  readonly now: Now
}

/** A query as received. Members that were not sent are absent. */
export interface MeterQuery {
  readonly meter: string | undefined
  readonly externalUserId: string | undefined
  readonly groupBy: readonly string[]
  readonly from: string | undefined
  readonly to: string | undefined
}

/** The sum of a meter over a window, by dimensions. */
export interface MeterSum {
  readonly windowStart: string
  readonly windowEnd: string
  /** An exact decimal. */
  readonly value: string
  readonly dimensions: Record<string, string>
}

const maxRows = 10_000

/**
 * Queries the catalogue's meters for the user who presents the credential (docs/builder-api.md).
 */
export function createMeters({ pool, read, clocks, now, meters, requireAnswers }: MetersDeps) {
  /**
   * Returns the caller's own usage of one meter. Throws REQUEST_INVALID in the order of
   * docs/builder-api.md, then METERING_FAILED if the backend does not answer. The figures come from
   * the ledger.
   */
  async function query(caller: UserCaller, request: MeterQuery): Promise<MeterSum[]> {
    const meter = parseMeter(meters, request.meter)
    requireSelf(caller, request.externalUserId)
    const dimensions = parseDimensions(meter, request.groupBy)
    const range = parseWindow(request)
    await requireAnswers().catch(asFailure)
    const { appId, userId } = caller
    const keys = dimensions.flatMap((dimension) => columns[dimension] ?? [])
    const selection = { appId, userId, range, requestId: null }
    const sums = await read((from) => sumsBy(from, selection, { keys, limit: maxRows }))
    const rows = sums.filter(isUsed)
    const values = valuesOf[meter.key](rows)
    const window = windowOf(rows, range, await clocks.timeOf(pool, appId, now()))
    return rows.map((row, index) => ({
      ...window,
      value: values[index] ?? '0',
      dimensions: Object.fromEntries(dimensions.map((name) => [name, textOf(name, row, caller)])),
    }))
  }

  return { query }
}

export type Meters = ReturnType<typeof createMeters>

const always: readonly Dimension[] = ['client_id', 'external_user_id']

/** Columns of the dimensions that do not identify the caller. */
const columns: Partial<Record<Dimension, Key>> = {
  pipeline: 'pipeline',
  model_id: 'model_id',
  manifest_id: 'manifest_id',
}

function textOf(dimension: Dimension, row: UsageRow, caller: UserCaller): string {
  if (dimension === 'client_id') return caller.clientId
  if (dimension === 'external_user_id') return caller.externalUserId
  if (row.rest) return 'other'
  const text = { pipeline: row.pipeline, model_id: row.modelId, manifest_id: row.manifestId }
  // The same words as in the backend's events (metering/backend/cloud-event.ts).
  return text[dimension] || 'unknown'
}

/**
 * Returns the rows' values, in order. Micros are whole, and add up to those of all usage rounded
 * up.
 */
const valuesOf: Readonly<Record<MeterName, (rows: readonly UsageRow[]) => string[]>> = {
  network_fee_usd_micros: (rows) => microsThatAddUp(rows.map(({ cost }) => cost)).map(String),
  network_fee_usd_micros_by_manifest: (rows) =>
    microsThatAddUp(rows.map(({ cost }) => cost)).map(String),
  billable_usd_micros: (rows) => microsThatAddUp(rows.map(({ retail }) => retail)).map(String),
  signed_ticket_count: (rows) => rows.map(({ requests }) => String(requests)),
  fee_wei: (rows) => rows.map(({ fee }) => String(fee)),
  billable_secs: (rows) => rows.map(({ billableSecs }) => withoutZeros(billableSecs)),
}

const withoutZeros = (decimal: string): string =>
  decimal.includes('.') ? decimal.replace(/\.?0+$/, '') : decimal

// A sum without a grouping exists even without usage.
const isUsed = ({ requests }: UsageRow): boolean => requests !== 0n

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)

function parseMeter(meters: readonly Meter[], name: string | undefined): Meter {
  if (name === undefined || name === '') throw invalid('meter is required')
  const meter = meters.find(({ key }) => key === name)
  if (meter) return meter
  const names = meters.map(({ key }) => key).join(', ')
  throw invalid(`meter is not a catalog meter; it must be one of: ${names}`)
}

// Subjects are the client id, a colon and the external id, so an id with a colon looks like another
// subject.
function requireSelf({ externalUserId }: UserCaller, named: string | undefined): void {
  if (named === undefined || named === externalUserId) return
  if (named.includes(':')) throw invalid('externalUserId must not contain ":"')
  throw invalid('externalUserId must match the authenticated actor')
}

function parseDimensions(meter: Meter, names: readonly string[]): Dimension[] {
  const dimensions = names
    .filter((name) => name !== '' && name !== 'subject')
    .map((name) => {
      const dimension = meter.dimensions.find((known) => known === name)
      if (dimension !== undefined) return dimension
      const known = meter.dimensions.join(', ')
      const word = JSON.stringify(name.slice(0, 100))
      throw invalid(`groupBy ${word} is not a dimension of ${meter.key}, which has: ${known}`)
    })
  return [...new Set([...always, ...dimensions])]
}

interface Window {
  readonly start: Date | null
  readonly end: Date | null
}

function parseWindow({ from, to }: Pick<MeterQuery, 'from' | 'to'>): Window {
  const window = { start: parseTime('from', from), end: parseTime('to', to) }
  if (window.start && window.end && window.end < window.start)
    throw invalid('to must not be before from')
  return window
}

// RFC 3339 section 5.6: seconds are required, hour 24 is invalid, T and Z may be of either case.
const timeOfDay = /T(?:[01]\d|2[0-3]):\d{2}:\d{2}/

function parseTime(name: string, text: string | undefined): Date | null {
  if (text === undefined) return null
  const upper = text.toUpperCase()
  const instant = timeOfDay.test(upper) ? parseInstant(upper) : null
  if (instant) return instant
  throw invalid(
    `${name} must be an instant of RFC 3339, such as 2026-04-01T00:00:00Z; a + is %2B in an address`,
  )
}

/**
 * Returns the window. An open start is the first usage, an open end is now, by the clock of the
 * app.
 */
function windowOf(rows: readonly UsageRow[], { start, end }: Window, at: Date) {
  const first = Math.min(...rows.map(({ firstAt }) => firstAt?.getTime() ?? Infinity))
  const from = start ?? new Date(Number.isFinite(first) ? first : at.getTime())
  return { windowStart: from.toISOString(), windowEnd: (end ?? at).toISOString() }
}

function asFailure(error: unknown): never {
  if (error instanceof DomainError && error.reason === 'METERING_UNREACHABLE')
    throw new DomainError('METERING_FAILED', 'usage query failed', { cause: error })
  throw error
}
