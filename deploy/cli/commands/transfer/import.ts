import { DamagedFile } from '../../../../core/lib/files/whole-file.ts'
import {
  checkTicketFile,
  isTicketFileName,
  readTicketFile,
} from '../../../../core/books/transfer/ticket-file.ts'
import { type CoreClient, retry } from '../../client.ts'
import { action, createCommand } from '../../command.ts'
import { UsageError, appFilter, argument } from '../../options.ts'
import { createProgressBar } from '../../output.ts'

export const importTickets = createCommand('import', {
  summary: 'imports the tickets of a file, each once',
  examples: ['./tollgate import january.ndjson.gz'],
  action: action({
    text:
      'Reads a file of `tollgate export` or of the archive. The whole file is checked against its checksums ' +
      'first; a damaged file changes nothing. A ticket is identified by the id of its event; existing tickets ' +
      'stay unchanged, so an interrupted import can be repeated. If an id belongs to another event here, the ' +
      'command reports the conflict and keeps that event. In the deployment that archived the file, tickets are ' +
      'restored unchanged and nothing is charged again. In another deployment they become tickets of the app ' +
      '(--app, or the app that the file names): unknown users are created, prices are kept, and the costs are ' +
      'charged now to the existing allowances. Credits are not part of the file.',
    options: { file: argument('FILE'), clientId: appFilter },
    change: async (core, { file, clientId }) => {
      if (!isTicketFileName(file)) throw new UsageError('the file must end with .gz or .zst')
      return importFile(core, file, clientId).catch((error: unknown) => {
        if (!(error instanceof DamagedFile)) throw error
        const text = `${file} is damaged: ${error.message}; nothing after that point was imported`
        throw new Error(text, { cause: error })
      })
    },
    lines: ({ file, tickets, duplicates, restored, conflictingEventIds }) => [
      ...conflictingEventIds.map(
        (id) => `CONFLICT another event has the id ${id} here; that event is kept`,
      ),
      `${file}: ${tickets} tickets imported, ${duplicates} already present, ${restored} restored`,
    ],
    isFailure: ({ conflictingEventIds }) => conflictingEventIds.length > 0,
  }),
})

async function importFile(core: CoreClient, file: string, clientId: string | undefined) {
  const { manifest, sums } = await checkTicketFile(file)
  const total = {
    file,
    tickets: 0,
    duplicates: 0,
    restored: 0,
    conflictingEventIds: [] as string[],
  }
  const bar = createProgressBar()
  try {
    let done = 0
    for await (const chunk of readTicketFile(file)) {
      if ('format' in chunk) continue
      const { lines, sha256 } = chunk
      const request = {
        clientId: clientId ?? manifest.clientId,
        lines,
        sha256,
        fileSha256: sums.sha256,
      }
      const answer = await retry(() => core.books.importTickets(request))
      total.tickets += answer.tickets
      total.duplicates += answer.duplicates
      total.restored += answer.restored
      total.conflictingEventIds.push(...answer.conflictingEventIds)
      done += chunk.tickets
      bar.update({ name: 'tickets', done, total: sums.tickets })
    }
  } finally {
    bar.end()
  }
  return total
}
