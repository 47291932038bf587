import {
  type Chunk,
  type Manifest,
  isTicketFileName,
  writeTicketFile,
} from '../../../../core/books/transfer/ticket-file.ts'
import { requireAbsent, writeWhole } from '../../../../core/lib/files/whole-file.ts'
import { type CoreReader, retry } from '../../client.ts'
import { action, createCommand } from '../../command.ts'
import { UsageError, app, required, text, toggle } from '../../options.ts'
import { type ProgressBar, createProgressBar } from '../../output.ts'

export const exportTickets = createCommand('export', {
  summary: 'writes the tickets of an app to a file',
  examples: [
    './tollgate export --app app_0123456789abcdef01234567 --out january.ndjson.gz --from 2026-01-01 --to 2026-02-01',
  ],
  action: action({
    text:
      'Writes the tickets that were signed at or after --from and before --to (ISO 8601; by default all tickets) ' +
      'to FILE. The file is compressed NDJSON (.ndjson.gz or .ndjson.zst) with a manifest and SHA-256 checksums ' +
      'of each chunk and of the whole file. Every ticket carries its price, so that `tollgate import` needs no ' +
      'rate and changes none. Tickets that arrive while the command runs may or may not be included. FILE ' +
      'appears when it is complete; an interrupted export can be repeated. An existing FILE is kept unless ' +
      '--force is set.',
    options: {
      clientId: app,
      file: required('FILE', { flag: 'out' }),
      from: text('TIME'),
      to: text('TIME'),
      force: toggle(),
    },
    read: async (core, { file, force, ...selection }) => {
      if (!isTicketFileName(file)) throw new UsageError('--out must end with .gz or .zst')
      await requireAbsent(file, force)
      const bar = createProgressBar()
      const sums = await write(file, selection, { core, bar }).finally(bar.end)
      return { file, ...sums }
    },
    lines: ({ file, tickets, chunks, sha256 }) => [
      `${file}: ${tickets} tickets in ${chunks} chunks, SHA-256 ${sha256}`,
    ],
  }),
})

interface Selection {
  readonly clientId: string
  readonly from: string | undefined
  readonly to: string | undefined
}

/** Returns the head of the app's ledger at the time of the export. */
async function headOf(core: CoreReader, clientId: string): Promise<Manifest['booksHead']> {
  const [head] = (await retry(() => core.books.sealBooks({ clientId }))).heads
  return head ? { number: head.number, head: head.head } : null
}

async function write(
  out: string,
  { clientId, from, to }: Selection,
  { core, bar }: { core: CoreReader; bar: ProgressBar },
) {
  async function* chunks(): AsyncGenerator<Chunk> {
    let [done, total] = [0, 0]
    for (let cursor: string | undefined; ;) {
      const page = await retry(() => core.books.exportTickets({ clientId, from, to, cursor }))
      if (cursor === undefined) total = Number(page.totalTickets)
      done += page.tickets
      bar.update({ name: 'tickets', done, total: Math.max(total, done) })
      if (page.tickets > 0) yield page
      cursor = page.nextCursor
      if (cursor === undefined) return
    }
  }
  return writeWhole(out, async (part) => {
    const manifest = {
      format: 'tollgate-tickets',
      version: 2,
      clientId,
      from: from ?? null,
      to: to ?? null,
      exportedAt: new Date().toISOString(),
      booksHead: await headOf(core, clientId),
    } as const
    return writeTicketFile(part, manifest, { name: out, chunks: chunks() })
  })
}
