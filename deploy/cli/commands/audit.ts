import { setTimeout as sleep } from 'node:timers/promises'
import type {
  ExportAuditRequest,
  ExportedAuditEntry,
} from '../../../proto/gen/ts-proto/tollgate/shared/v1/audit.ts'
import { type CoreReader, retry } from '../client.ts'
import { action, createCommand } from '../command.ts'
import { appFilter, text, toggle } from '../options.ts'

const followMs = 2_000

export const audit = createCommand('audit', {
  summary: 'writes the audit log of all apps as NDJSON',
  examples: [
    './tollgate audit --app app_0123456789abcdef01234567 --since 2026-01-31',
    './tollgate audit --follow',
  ],
  action: action({
    text:
      'Writes every entry as a line of JSON to standard output, the oldest first: actor, action, app, outcome ' +
      'and request. With --app only the entries of that app. TIME is an ISO 8601 instant or a day; the range ' +
      'includes --since and excludes --until. --after continues after the "cursor" of a line. --follow continues ' +
      'with new entries 15 seconds after they were made, so that entries that are committed late are not missed. ' +
      "The entry of an operator's command has the user and host that the command reports for itself.",
    options: {
      clientId: appFilter,
      since: text('TIME'),
      until: text('TIME'),
      cursor: text('CURSOR', { flag: 'after' }),
      settled: toggle({ flag: 'follow' }),
    },
    atMostOne: [['until', 'settled']],
    read: (core, request) => writeEntries(core, { ...request, limit: 0 }),
  }),
})

/** Writes page after page; with `settled`, waits for more at the end. */
async function writeEntries(core: CoreReader, request: ExportAuditRequest): Promise<void> {
  let cursor = request.cursor
  for (;;) {
    const next = cursor
    const page = await retry(() => core.audit.exportAudit({ ...request, cursor: next }))
    for (const entry of page.entries) await writeLine(entry)
    cursor = page.entries.at(-1)?.cursor ?? cursor
    if (page.nextCursor !== undefined) continue
    if (!request.settled) return
    await sleep(followMs)
  }
}

async function writeLine({ detailsJson, clientId, ...entry }: ExportedAuditEntry): Promise<void> {
  const details: unknown = JSON.parse(detailsJson)
  const line = `${JSON.stringify({ clientId: clientId ?? null, ...entry, details })}\n`
  if (process.stdout.write(line)) return
  const { promise, resolve } = Promise.withResolvers<void>()
  process.stdout.once('drain', resolve)
  await promise
}
