import { hash } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { authId, isClientId } from '../../shared/ids.ts'
import { tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { SignedTicket, SigningLimits } from '../../metering/events/parse.ts'
import type { ManualIngest, ManualTicket } from '../../metering/ingest/manual-ingest.ts'
import type { TicketRecords } from '../../metering/records.ts'
import type { Shared } from '../../shared/shared.ts'
import { type ArchivedPart, findArchive, lockArchive, subtractRestored } from './archive-store.ts'
import { findApp } from '../store.ts'
import { type TicketRecord, toMicros, parseTicketLine } from './ticket-line.ts'
import type { AppRef } from '../types.ts'

export interface ImportDeps extends Pick<Shared, 'pool' | 'now' | 'log'> {
  readonly manualIngest: ManualIngest
  readonly signingLimits: SigningLimits
  readonly conflictOnPoison: <T>(work: () => Promise<T>) => Promise<T>
  readonly restoreTickets: TicketRecords['restoreTickets']
  readonly invalidations: {
    publish(event: { readonly kind: 'access'; readonly id: string }): Promise<void>
  }
}

export interface ImportRequest {
  readonly clientId: string
  readonly lines: Buffer
  readonly sha256: string
  readonly fileSha256: string
}

export interface Imported {
  readonly tickets: number
  readonly duplicates: number
  readonly conflictingEventIds: readonly string[]
  readonly restored: number
}

const maxTickets = 1_000
const maxBytes = 8 * 1024 * 1024
const earliest = '2020-01-01'

/**
 * Imports tickets from files: from another deployment once, by event id; from an archive of this
 * deployment back into its month.
 */
export function createImport({
  pool,
  now,
  log,
  manualIngest,
  signingLimits: limits,
  conflictOnPoison,
  restoreTickets,
  invalidations,
}: ImportDeps) {
  /**
   * Imports all lines in one transaction. Throws REQUEST_INVALID and writes nothing when the
   * checksum differs or a line is not a ticket. Throws NOT_FOUND for an unknown app.
   */
  async function importLines({
    clientId,
    lines,
    sha256,
    fileSha256,
  }: ImportRequest): Promise<Imported> {
    const app = isClientId(clientId) ? await findApp(pool, clientId) : null
    if (!app) throw new DomainError('NOT_FOUND', 'no app has this client id')
    const texts = checkedLines(lines, sha256)
    const records = texts.map(readRecord)
    const archive = await findArchive(pool, app.id, fileSha256)
    const imported = archive ? await restore(texts, archive) : await enter(app, records)
    log.info(
      { appId: app.id, ...imported, conflictingEventIds: imported.conflictingEventIds.length },
      'tickets imported',
    )
    return imported
  }

  /** Restores tickets that were charged here before they were archived. */
  async function restore(texts: readonly string[], archive: ArchivedPart): Promise<Imported> {
    const charges = await conflictOnPoison(() =>
      tx(pool, async (db) => {
        await lockArchive(db, archive)
        const sums = await restoreTickets(db, { ...archive, lines: texts })
        await subtractRestored(db, archive, { charges: sums, at: now() })
        return sums
      }),
    )
    const restored = charges.reduce((sum, { tickets }) => sum + Number(tickets), 0)
    return { tickets: 0, duplicates: texts.length - restored, conflictingEventIds: [], restored }
  }

  /**
   * Enters tickets of another deployment: provisions their users, keeps their prices and charges
   * their costs now.
   */
  async function enter(app: AppRef, records: readonly TicketRecord[]): Promise<Imported> {
    const tickets = records.map((record) => toTicket(app.clientId, record))
    const subjects = await manualIngest.prepare(tickets)
    const manualTickets = records.map((record, i): ManualTicket => {
      const subject = subjects.get(authId(app.clientId, record.externalUserId))
      const ticket = tickets[i]
      if (!subject || !ticket)
        throw new DomainError(
          'CONFLICT',
          `the app has no user ${record.externalUserId} and cannot create users now`,
        )
      return { ticket, subject, digest: record.digest, price: record.price ?? undefined }
    })
    const { ingested, duplicates, conflicts, exhausted } = await conflictOnPoison(() =>
      tx(pool, (db) => manualIngest.ingest(db, manualTickets, now())),
    )
    for (const id of exhausted) await invalidations.publish({ kind: 'access', id })
    return {
      tickets: ingested.length,
      duplicates: duplicates.length,
      restored: 0,
      conflictingEventIds: conflicts.flatMap((index) => records[index]?.eventId ?? []),
    }
  }

  function readRecord(text: string, index: number): TicketRecord {
    const record = parseTicketLine(text)
    if (typeof record === 'string') throw invalid(`line ${index + 1} is not a ticket: ${record}`)
    if (record.signedAt < earliest || record.signedAt > addSeconds(now(), 86_400).toISOString()) {
      throw invalid(`line ${index + 1} is not a ticket: signedAt is out of range`)
    }
    const oldest = addSeconds(now(), -limits.maxAgeDays * 86_400).toISOString()
    if (record.price === null && record.signedAt < oldest)
      throw invalid(
        `line ${index + 1} has no price and is older than TICKET_MAX_AGE_DAYS=${limits.maxAgeDays}, so it would never get a price`,
      )
    return record
  }

  return { importLines }
}

export type TicketImport = ReturnType<typeof createImport>

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)

function checkedLines(lines: Buffer, sha256: string): string[] {
  if (lines.length > maxBytes) throw invalid(`send at most ${maxBytes} bytes at once`)
  if (hash('sha256', lines, 'hex') !== sha256)
    throw invalid('the lines do not match their checksum')
  const texts = lines.toString('utf8').split('\n')
  if (texts.pop() !== '' || texts.length === 0)
    throw invalid('lines must be whole, and at least one is required')
  if (texts.length > maxTickets) throw invalid(`send at most ${maxTickets} tickets at once`)
  return texts
}

const toTicket = (clientId: string, record: TicketRecord): SignedTicket => ({
  eventId: record.eventId,
  clientId,
  externalUserId: record.externalUserId,
  signedAt: record.signedAt,
  signedAtMs: Date.parse(record.signedAt),
  signedAtMicros: toMicros(record.signedAt),
  sessionId: record.sessionId,
  sequenceNumber: record.sequenceNumber,
  requestId: record.requestId,
  manifestId: record.manifestId,
  appName: record.appName,
  pipeline: record.pipeline,
  modelId: record.modelId,
  fee: record.fee,
  billableSecs: record.billableSecs,
  pixels: record.pixels,
  numTickets: record.numTickets,
  orchAddress: record.orchAddress,
  orchUrl: record.orchUrl,
  statedUsd: record.statedUsd,
  emittedAtMs: record.emittedAt === null ? null : Date.parse(record.emittedAt),
})
