import type {
  BookDifference,
  VerifyBooksResponse,
} from '../../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { type Command, UsageError, parse, printJson, withCore } from '../command.ts'
import { type ProgressBar, createProgressBar } from '../progress.ts'

export const verify: Command = {
  summary: 'recomputes sums, ledger and balances from the tickets',
  help: `tollgate verify [--app ID] [--json]
  Proves the books of one app (app_…), or of all: hourly sums and sessions against tickets, charges against the tickets
  that name them, ledger entries against each other, balances against entries, grants against what was spent of them,
  costs against fees and rates, tickets against the envelopes that keep them unique, archived months as a whole. Each
  app is read from one snapshot, several side by side, while the service runs; nothing is written.
  Every difference is a line: which row, which column, what is there, what should be. Ends with 1 when there is any.
`,
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      json: { type: 'boolean' },
    })
    if (positionals.length > 0) throw new UsageError('verify takes no arguments, only options')
    const result = await withCore(async (core) => {
      const bar = createProgressBar()
      const shown = newResult()
      for await (const message of core.verifyBooks({ clientId: values.app }))
        take(shown, message, values.json ? null : bar)
      bar.end()
      return shown
    })
    if (values.json) printJson({ ok: result.differences.length === 0, ...result })
    else process.stdout.write(summaryOf(result))
    return result.differences.length === 0 ? 0 : 1
  },
}

interface Result {
  apps: number
  users: number
  readonly differences: (BookDifference & { clientId: string })[]
}

const newResult = (): Result => ({ apps: 0, users: 0, differences: [] })

function take(result: Result, message: VerifyBooksResponse, bar: ProgressBar | null): void {
  const { kind, clientId, usersChecked, usersTotal, differences, difference } = message
  if (kind === 'difference' && difference) {
    result.differences.push({ clientId, ...difference })
    bar?.line(lineOf(clientId, difference))
  }
  if (kind === 'done') {
    result.users += usersChecked
    result.apps += clientId === '' ? 0 : 1
    if (clientId !== '')
      bar?.line(
        `${clientId}  ${usersChecked} of ${usersTotal} users, ${differences === 0 ? 'no difference' : `${differences} differences`}`,
      )
  }
  bar?.update({
    name: clientId,
    done: usersChecked,
    total: usersTotal,
    note: `${result.differences.length} differences`,
  })
}

function lineOf(clientId: string, difference: BookDifference): string {
  const { check, endUserId, externalUserId, row, column, stored, expected, by } = difference
  const user =
    endUserId === undefined
      ? ''
      : ` user=${endUserId}${externalUserId === undefined ? '' : ` (${externalUserId})`}`
  const found = `${column} is ${stored ?? 'missing'}, should be ${expected ?? 'missing'}${by === undefined ? '' : `, by ${by}`}`
  return `DIFFERENCE ${check}${clientId && ` ${clientId}`}${user}${row && ` ${row}`}: ${found}`
}

function summaryOf({ apps, users, differences }: Result): string {
  const checked = `${apps} ${apps === 1 ? 'app' : 'apps'} and ${users} users checked`
  return differences.length === 0
    ? `${checked}: the books are right.\n`
    : `${checked}: ${differences.length} differences.\n`
}
