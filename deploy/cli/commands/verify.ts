import type {
  BookDifference,
  SealBooksResponse,
  VerifyBooksResponse,
} from '../../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { action, createCommand } from '../command.ts'
import { text, toggle } from '../options.ts'
import { type ProgressBar, createProgressBar, table } from '../output.ts'

export const verify = createCommand('verify', {
  summary: 'recomputes sums, ledger and balances from the tickets',
  examples: ['./tollgate verify', './tollgate verify --app app_0123456789abcdef01234567 --json'],
  action: action({
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
    options: { clientId: text('ID', { flag: 'app' }), head: toggle() },
    read: async (core, { clientId, head, json }) => {
      if (head) return core.books.sealBooks({ clientId })
      const bar = createProgressBar()
      const result: Verification = { apps: 0, users: 0, differences: [] }
      for await (const message of core.books.verifyBooks({ clientId }))
        addMessage(result, message, json ? null : bar)
      bar.end()
      return result
    },
    json: (answer) =>
      'heads' in answer ? answer : { ok: answer.differences.length === 0, ...answer },
    lines: (answer) => ('heads' in answer ? headLines(answer) : [summaryOf(answer)]),
    isFailure: (answer) => 'differences' in answer && answer.differences.length > 0,
  }),
})

const headLines = ({ heads }: SealBooksResponse): string[] =>
  table(
    heads,
    [['app', 'clientId'], 'number', ['made', 'createdAt'], 'entries', 'users', 'head'],
    'no apps',
  )

interface Verification {
  apps: number
  users: number
  readonly differences: (BookDifference & { clientId: string })[]
}

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
    ? `${checked}: the books are right.`
    : `${checked}: ${differences.length} differences.`
}
