import {
  DamagedFile,
  checkTicketFile,
  isTicketFileName,
  readTicketFile,
} from '../../../core/books/transfer/ticket-file.ts'
import { type Command, UsageError, parse, printJson, printLines, withCore } from '../command.ts'
import { patiently } from '../retry.ts'
import { createProgressBar } from '../progress.ts'

export const importTickets: Command = {
  summary: 'takes the tickets of a file in, each once',
  help: `tollgate import FILE [--app APP] [--json]
  Takes in what "tollgate export" or the archive wrote. The whole file is checked against its checksums first; a damaged
  one changes nothing. A ticket is known by the id of its event: what is there already stays, so that an import that
  broke off is simply run again. An id that stands for another event here is told, and that event stays.
  Into the deployment that archived the file, tickets come back as they were: nothing is charged again. Into another
  one they become tickets of the app (--app, or the one named in the file): users are made where they are new, prices
  are kept, and the costs are charged now, to the allowances that are there. Grants do not travel.
`,
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      json: { type: 'boolean' },
    })
    const [file, ...others] = positionals
    if (file === undefined || others.length > 0) throw new UsageError('import takes one file')
    if (!isTicketFileName(file)) throw new UsageError('the file must end with .gz or .zst')
    const result = await take(file, values.app).catch((error: unknown) => {
      throw error instanceof DamagedFile
        ? new Error(`${file} is damaged: ${error.message}; nothing of it from there on was taken`, {
            cause: error,
          })
        : error
    })
    if (values.json) printJson(result)
    else {
      printLines([
        ...result.conflictingEventIds.map(
          (id) => `CONFLICT another event has the id ${id} here; it stands`,
        ),
        `${file}: ${result.tickets} tickets taken in, ${result.duplicates} known already, ${result.restored} put back`,
      ])
    }
    return result.conflictingEventIds.length === 0 ? 0 : 1
  },
}

async function take(file: string, app: string | undefined) {
  const { manifest, sums } = await checkTicketFile(file)
  const total = {
    file,
    tickets: 0,
    duplicates: 0,
    restored: 0,
    conflictingEventIds: [] as string[],
  }
  const bar = createProgressBar()
  return withCore(async (core) => {
    let done = 0
    for await (const chunk of readTicketFile(file)) {
      if ('format' in chunk) continue
      const { lines, sha256 } = chunk
      const answer = await patiently(() =>
        core.importTickets({
          clientId: app ?? manifest.clientId,
          lines,
          sha256,
          fileSha256: sums.sha256,
        }),
      )
      total.tickets += answer.tickets
      total.duplicates += answer.duplicates
      total.restored += answer.restored
      total.conflictingEventIds.push(...answer.conflictingEventIds)
      done += chunk.tickets
      bar.update({ name: 'tickets', done, total: sums.tickets })
    }
    return total
  }).finally(bar.end)
}
