import { DomainError } from '../../../proto/errors.ts'
import { type AppId, isClientId } from '../../shared/ids.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, parseUtcDay } from '../../lib/time.ts'
import type { MeterRow, MeteringBackend } from './backend.ts'
import { type MeterName, customerKey } from './catalog.ts'
import { exactMicros } from './cloud-event.ts'
import * as store from './store.ts'

/** One user's day, in our tables and in the backend. */
export interface UserDay {
  readonly subject: string
  readonly externalUserId: string | null
  readonly ownTickets: bigint
  readonly ownCost: UsdAttos
  readonly backendTickets: number
  readonly backendMicros: number
  readonly drifts: boolean
}

export interface AppDay {
  readonly clientId: string
  readonly day: string
  readonly users: readonly UserDay[]
}

export interface Span {
  readonly clientId: string | null
  readonly from: Date
  readonly to: Date
}

interface AppHours {
  readonly app: store.ReconciledApp
  readonly hours: store.Hours
  readonly signal: AbortSignal | undefined
}

export const hourMs = 3_600_000
export const dayMs = 24 * hourMs
const daysMax = 92
const appsAtOnce = 200
/** Time for events to arrive and to be sent. */
const settledAfterMs = 900_000

/** Float sums agree if they differ by at most a micro plus a billionth of the sum. */
const toleranceMicros = 1
const tolerancePart = 1e-9

export const toMicros = (cost: UsdAttos): number => Number(exactMicros(cost))

export function createComparison({
  pool,
  backend,
  now,
}: {
  pool: Pool
  backend: Pick<MeteringBackend, 'query'>
  now: Now
}) {
  /**
   * Parses the span of an operator's request: days as YYYY-MM-DD, both inclusive. Throws
   * REQUEST_INVALID; NOT_FOUND for an unknown app.
   */
  async function spanOf(request: {
    clientId?: string | undefined
    from: string
    to: string
  }): Promise<Span> {
    const from = parseUtcDay(request.from)
    const last = parseUtcDay(request.to)
    if (!from || !last)
      throw new DomainError('REQUEST_INVALID', 'from and to must be UTC days such as 2026-01-31')
    if (last < from) throw new DomainError('REQUEST_INVALID', 'from must not be after to')
    if (last > now()) throw new DomainError('REQUEST_INVALID', 'to must not be in the future')
    if (last.getTime() - from.getTime() >= daysMax * dayMs)
      throw new DomainError('REQUEST_INVALID', `request at most ${daysMax} days`)
    const { clientId } = request
    if (clientId !== undefined && !(isClientId(clientId) && (await store.isClient(pool, clientId))))
      throw new DomainError('NOT_FOUND', 'no such app')
    return { clientId: clientId ?? null, from, to: new Date(last.getTime() + dayMs) }
  }

  /**
   * Compares day by day and app by app; ends early if `signal` aborts. Throws METERING_UNREACHABLE.
   */
  async function* compare(
    { clientId, from, to }: Span,
    signal?: AbortSignal,
  ): AsyncGenerator<AppDay> {
    const settled = new Date(Math.floor((now().getTime() - settledAfterMs) / hourMs) * hourMs)
    for (let start = from; start < to; start = new Date(start.getTime() + dayMs)) {
      const next = new Date(start.getTime() + dayMs)
      const hours = { from: start, to: next < settled ? next : settled }
      if (hours.from >= hours.to) return
      yield* compareDay(hours, clientId, signal)
    }
  }

  async function* compareDay(
    hours: store.Hours,
    clientId: string | null,
    signal?: AbortSignal,
  ): AsyncGenerator<AppDay> {
    let after: AppId | null = null
    do {
      const apps: store.ReconciledApp[] = await store.appsWithUsage(pool, hours, {
        clientId,
        after,
        limit: appsAtOnce,
      })
      for (const app of apps) {
        if (signal?.aborted) return
        yield await compareApp(app, hours, signal)
      }
      after = apps.length === appsAtOnce ? (apps.at(-1)?.appId ?? null) : null
    } while (after !== null)
  }

  async function compareApp(
    app: store.ReconciledApp,
    hours: store.Hours,
    signal?: AbortSignal,
  ): Promise<AppDay> {
    const [tickets, micros] = await Promise.all([
      ask('signed_ticket_count', { app, hours, signal }),
      ask('network_fee_usd_micros', { app, hours, signal }),
    ])
    const own = await store.sumsByUser(pool, app.appId, hours)
    return {
      clientId: app.clientId,
      day: hours.from.toISOString().slice(0, 10),
      users: joinSums(own, tickets, micros),
    }
  }

  async function ask(
    meter: MeterName,
    { app, hours, signal }: AppHours,
  ): Promise<Map<string, number>> {
    const rows = await backend.query(
      { meter, clientId: app.clientId, ...hours, window: 'day', groupBy: ['subject'] },
      signal,
    )
    if (rows === null)
      throw new DomainError(
        'METERING_NOT_CONFIGURED',
        'there is no metering backend to reconcile with',
      )
    return bySubject(rows, hours)
  }

  return { spanOf, compare }
}

// A server that treats the end as inclusive also returns a window of the next day.
function bySubject(rows: readonly MeterRow[], hours: store.Hours): Map<string, number> {
  const sums = new Map<string, number>()
  for (const row of rows) {
    if (new Date(row.windowStart) >= hours.to) continue
    const subject = row.subject ?? ''
    sums.set(subject, (sums.get(subject) ?? 0) + row.value)
  }
  return sums
}

function joinSums(
  own: readonly store.OwnSum[],
  tickets: ReadonlyMap<string, number>,
  micros: ReadonlyMap<string, number>,
): UserDay[] {
  const known = new Map(own.map((sum) => [customerKey(sum.userId), sum]))
  return [...new Set([...known.keys(), ...tickets.keys()])].map((subject) => {
    const sum = known.get(subject)
    const day = {
      subject,
      externalUserId: sum?.externalUserId ?? null,
      ownTickets: sum?.tickets ?? 0n,
      ownCost: sum?.cost ?? usdAttos(0n),
      backendTickets: tickets.get(subject) ?? 0,
      backendMicros: micros.get(subject) ?? 0,
    }
    return { ...day, drifts: isDrift(day) }
  })
}

function isDrift({
  ownTickets,
  ownCost,
  backendTickets,
  backendMicros,
}: Omit<UserDay, 'drifts'>): boolean {
  const expected = toMicros(ownCost)
  return (
    Number(ownTickets) !== backendTickets ||
    Math.abs(backendMicros - expected) > toleranceMicros + expected * tolerancePart
  )
}
