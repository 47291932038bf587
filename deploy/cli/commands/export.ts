import { rename, rm, stat } from 'node:fs/promises'
import {
  type Chunk,
  type Manifest,
  isTicketFileName,
  writeTicketFile,
} from '../../../core/books/transfer/ticket-file.ts'
import { type CoreReader, retry } from '../client.ts'
import { type Command, UsageError, need, parse, withCore } from '../command.ts'
import { type ProgressBar, createProgressBar, report } from '../output.ts'

export const exportTickets: Command = {
  summary: 'writes the tickets of an app to a file',
  help: {
    usages: [
      {
        syntax:
          'tollgate export [--app APP] --out FILE [--from TIME] [--to TIME] [--force] [--json]',
        text:
          'Writes the tickets that were signed at or after --from and before --to (ISO 8601; by default all tickets) ' +
          'to FILE. The file is compressed NDJSON (.ndjson.gz or .ndjson.zst) with a manifest and SHA-256 checksums ' +
          'of each chunk and of the whole file. Every ticket carries its price, so that `tollgate import` needs no ' +
          'rate and changes none. Tickets that arrive while the command runs may or may not be included. FILE ' +
          'appears when it is complete; an interrupted export can be repeated. An existing FILE is kept unless ' +
          '--force is set.',
      },
    ],
    examples: [
      './tollgate export --app app_0123456789abcdef01234567 --out january.ndjson.gz --from 2026-01-01 --to 2026-02-01',
    ],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      out: { type: 'string' },
      from: { type: 'string' },
      to: { type: 'string' },
      force: { type: 'boolean' },
    })
    const { from, to } = values
    if (positionals.length > 0) throw new UsageError(`"${positionals[0]}" is not expected here`)
    const { app, out } = await need('export', values, ['app', 'out'])
    if (!isTicketFileName(out)) throw new UsageError('--out must end with .gz or .zst')
    if (
      !values.force &&
      (await stat(out).then(
        () => true,
        () => false,
      ))
    )
      throw new Error(`${out} exists; --force replaces it`)
    const bar = createProgressBar()
    const sums = await withCore(values, (core) =>
      write(out, { app, from, to }, { core, bar }),
    ).finally(bar.end)
    report(values, { file: out, ...sums }, () => [
      `${out}: ${sums.tickets} tickets in ${sums.chunks} chunks, SHA-256 ${sums.sha256}`,
    ])
    return 0
  },
}

interface Selection {
  readonly app: string
  readonly from: string | undefined
  readonly to: string | undefined
}

/** Returns the head of the app's ledger at the time of the export. */
async function headOf(core: CoreReader, clientId: string): Promise<Manifest['booksHead']> {
  const [head] = (await retry(() => core.sealBooks({ clientId }))).heads
  return head ? { number: head.number, head: head.head } : null
}

async function write(
  out: string,
  { app, from, to }: Selection,
  { core, bar }: { core: CoreReader; bar: ProgressBar },
) {
  const part = `${out}.part`
  async function* chunks(): AsyncGenerator<Chunk> {
    let [done, total] = [0, 0]
    for (let cursor: string | undefined; ;) {
      const page = await retry(() => core.exportTickets({ clientId: app, from, to, cursor }))
      if (cursor === undefined) total = Number(page.totalTickets)
      done += page.tickets
      bar.update({ name: 'tickets', done, total: Math.max(total, done) })
      if (page.tickets > 0) yield page
      cursor = page.nextCursor
      if (cursor === undefined) return
    }
  }
  try {
    const manifest = {
      format: 'tollgate-tickets',
      version: 2,
      clientId: app,
      from: from ?? null,
      to: to ?? null,
      exportedAt: new Date().toISOString(),
      booksHead: await headOf(core, app),
    } as const
    const sums = await writeTicketFile(part, manifest, { name: out, chunks: chunks() })
    await rename(part, out)
    return sums
  } catch (error) {
    await rm(part, { force: true })
    throw error
  }
}
