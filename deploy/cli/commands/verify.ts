import type {
  BookDifference,
  VerifyBooksResponse,
} from '../../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { type Command, UsageError, type Target, parse, withCore } from '../command.ts'
import { type ProgressBar, createProgressBar, printJson, report, table } from '../output.ts'

export const verify: Command = {
  summary: 'recomputes sums, ledger and balances from the tickets',
  help: {
    usages: [
      {
        syntax: 'tollgate verify [--app ID] [--head] [--json]',
        text:
          'Verifies the books of one app (app_…) or of all apps. Replays each ledger from its facts - tickets in ' +
          'booking order, credits, corrections, plan versions, rates - and compares everything derived from them: ' +
          'debits of each credit, overage, periods and their sums, expiries, prices, hourly sums, sessions, ' +
          'balances, envelopes, archives, the chain of entries; and plan versions, bundles and cuts with the chain ' +
          'of prices. Each app is read from one snapshot while the service runs; nothing is written. Each difference ' +
          'is a line with the row, the column, the stored and the expected value. The command exits with 1 when it ' +
          'finds a difference. With --head it prints, instead, the head of each app: a hash over all of its entries, ' +
          'chained to the earlier heads. Keep a copy elsewhere: a rewrite of the whole database cannot change that ' +
          'copy.',
      },
    ],
    examples: ['./tollgate verify', './tollgate verify --app app_0123456789abcdef01234567 --json'],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      head: { type: 'boolean' },
    })
    if (positionals.length > 0) throw new UsageError('verify takes no arguments, only options')
    if (values.head) return printHeads(values)
    const result = await withCore(values, async (core) => {
      const bar = createProgressBar()
      const verification = newVerification()
      for await (const message of core.verifyBooks({ clientId: values.app }))
        addMessage(verification, message, values.json ? null : bar)
      bar.end()
      return verification
    })
    if (values.json) printJson({ ok: result.differences.length === 0, ...result })
    else process.stdout.write(summaryOf(result))
    return result.differences.length === 0 ? 0 : 1
  },
}

interface HeadOptions extends Target {
  readonly app?: string | undefined
  readonly json?: boolean | undefined
}

async function printHeads(values: HeadOptions): Promise<number> {
  const { heads } = await withCore(values, (core) => core.sealBooks({ clientId: values.app }))
  const rows = heads.map(({ clientId, number, createdAt, users, entries, head }) => [
    clientId,
    String(number),
    createdAt,
    String(entries),
    String(users),
    head,
  ])
  report(values, { heads }, () =>
    table(['app', 'number', 'made', 'entries', 'users', 'head'], rows, 'no apps'),
  )
  return 0
}

interface Verification {
  apps: number
  users: number
  readonly differences: (BookDifference & { clientId: string })[]
}

const newVerification = (): Verification => ({ apps: 0, users: 0, differences: [] })

function addMessage(
  result: Verification,
  message: VerifyBooksResponse,
  bar: ProgressBar | null,
): void {
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
  const values = `${column} is ${stored ?? 'missing'}, should be ${expected ?? 'missing'}${by === undefined ? '' : `, by ${by}`}`
  return `DIFFERENCE ${check}${clientId && ` ${clientId}`}${user}${row && ` ${row}`}: ${values}`
}

function summaryOf({ apps, users, differences }: Verification): string {
  const checked = `${apps} ${apps === 1 ? 'app' : 'apps'} and ${users} users checked`
  return differences.length === 0
    ? `${checked}: the books are right.\n`
    : `${checked}: ${differences.length} differences.\n`
}
