import {
  DamagedFile,
  checkTicketFile,
  isTicketFileName,
  readTicketFile,
} from '../../../core/books/transfer/ticket-file.ts'
import { retry } from '../client.ts'
import { type Command, UsageError, changeCore, parse } from '../command.ts'
import { createProgressBar, printJson, printLines } from '../output.ts'

export const importTickets: Command = {
  summary: 'imports the tickets of a file, each once',
  help: {
    usages: [
      {
        syntax: 'tollgate import FILE [--app APP] [--json]',
        text:
          'Reads a file of `tollgate export` or of the archive. The whole file is checked against its checksums ' +
          'first; a damaged file changes nothing. A ticket is identified by the id of its event; existing tickets ' +
          'stay unchanged, so an interrupted import can be repeated. If an id belongs to another event here, the ' +
          'command reports the conflict and keeps that event. In the deployment that archived the file, tickets are ' +
          'restored unchanged and nothing is charged again. In another deployment they become tickets of the app ' +
          '(--app, or the app that the file names): unknown users are created, prices are kept, and the costs are ' +
          'charged now to the existing allowances. Credits are not part of the file.',
      },
    ],
    examples: ['./tollgate import january.ndjson.gz'],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
    })
    const [file, ...others] = positionals
    if (file === undefined || others.length > 0) throw new UsageError('import takes one file')
    if (!isTicketFileName(file)) throw new UsageError('the file must end with .gz or .zst')
    const result = await take(file, values).catch((error: unknown) => {
      throw error instanceof DamagedFile
        ? new Error(`${file} is damaged: ${error.message}; nothing after that point was imported`, {
            cause: error,
          })
        : error
    })
    if (values.json) printJson(result)
    else {
      printLines([
        ...result.conflictingEventIds.map(
          (id) => `CONFLICT another event has the id ${id} here; that event is kept`,
        ),
        `${file}: ${result.tickets} tickets imported, ${result.duplicates} already present, ${result.restored} restored`,
      ])
    }
    return result.conflictingEventIds.length === 0 ? 0 : 1
  },
}

async function take(
  file: string,
  values: { app?: string | undefined; target?: string | undefined },
) {
  const { manifest, sums } = await checkTicketFile(file)
  const total = {
    file,
    tickets: 0,
    duplicates: 0,
    restored: 0,
    conflictingEventIds: [] as string[],
  }
  const bar = createProgressBar()
  return changeCore(values, async (core) => {
    let done = 0
    for await (const chunk of readTicketFile(file)) {
      if ('format' in chunk) continue
      const { lines, sha256 } = chunk
      const answer = await retry(() =>
        core.importTickets({
          clientId: values.app ?? manifest.clientId,
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
