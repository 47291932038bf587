import type { PriceCeiling } from '../../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import type { Limits } from '../../../proto/gen/ts-proto/tollgate/allowances/v1/limits.ts'
import { type Command, UsageError, changeCore, need, parse, withCore } from '../command.ts'
import { usd } from '../money.ts'
import { report } from '../output.ts'
import { readAuthor } from './quarantine.ts'

const options = {
  app: { type: 'string' },
  user: { type: 'string' },
  key: { type: 'string' },
  'usd-micros-per-day': { type: 'string' },
  'usd-micros-per-session': { type: 'string' },
  'calls-per-minute': { type: 'string' },
  'concurrent-sessions': { type: 'string' },
  'max-price': { type: 'string', multiple: true },
  author: { type: 'string' },
} as const

type Values = ReturnType<typeof parse<typeof options>>['values']

export const limits: Command = {
  summary: 'shows, sets and removes limits of a user or key',
  help: {
    usages: [
      {
        syntax: 'tollgate limits show [--app APP] --user EXTERNAL_USER_ID [--key KEY_ID] [--json]',
        text: 'Prints the limits of a user or, with --key, those of one of its keys.',
      },
      {
        syntax:
          'tollgate limits set [--app APP] --user EXTERNAL_USER_ID [--key KEY_ID] [--usd-micros-per-day N] ' +
          '[--usd-micros-per-session N] [--calls-per-minute N] [--concurrent-sessions N] ' +
          '[--max-price TYPE[:APPLICATION]=WEI]... [--author NAME] [--json]',
        text:
          'Replaces all limits of a user or key by these, from now on: unsettled calls count, earlier spending does ' +
          'not. A call must keep both the limits of its user and those of its key.',
      },
      {
        syntax:
          'tollgate limits clear [--app APP] --user EXTERNAL_USER_ID [--key KEY_ID] [--author NAME] [--json]',
        text: 'Removes all limits of a user or key, and their counters.',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [
          ['--usd-micros-per-day N', 'The most that may be spent on a day (UTC).'],
          ['--usd-micros-per-session N', 'The most that may be spent in one session.'],
          ['--calls-per-minute N', 'Calls that are allowed in each minute of the clock.'],
          [
            '--concurrent-sessions N',
            'Sessions at the same time: those with a call within the last 60 seconds.',
          ],
          [
            '--max-price TYPE[:APPLICATION]=WEI',
            'The highest price of live, lv2v or fixed sessions, of one application or of all: wei for one second, 720p pixel second or unit. May be repeated; if several match a call, the lowest applies.',
          ],
          [
            '--author NAME',
            'The author of this change; by default the name of the user who runs the command.',
          ],
        ],
      },
    ],
    examples: [
      './tollgate limits set --app app_0123456789abcdef01234567 --user ada --usd-micros-per-day 2000000 --max-price live=1300',
      './tollgate limits show --app app_0123456789abcdef01234567 --user ada',
    ],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, options)
    const [action, ...rest] = positionals
    const act = actions.get(action ?? '')
    if (!act || rest.length > 0) throw new UsageError('limits needs show, set or clear')
    await act(values)
    return 0
  },
}

async function show(values: Values): Promise<void> {
  const subject = await subjectOf(values)
  const answer = await withCore(values, (core) => core.readLimits(subject))
  print(answer.limits, values)
}

async function set(values: Values): Promise<void> {
  const request = {
    ...(await subjectOf(values)),
    limits: limitsOf(values),
    author: readAuthor(values),
  }
  const answer = await changeCore(values, (core) => core.replaceLimits(request))
  print(answer.limits, values)
}

async function clear(values: Values): Promise<void> {
  const request = { ...(await subjectOf(values)), author: readAuthor(values) }
  await changeCore(values, (core) => core.removeLimits(request))
  report(values, { limits: null }, () => [`${nameOf(values)} has no limits now`])
}

const actions = new Map([
  ['show', show],
  ['set', set],
  ['clear', clear],
])

async function subjectOf(values: Values) {
  const { app, user } = await need('limits', values, ['app', 'user'])
  return { clientId: app, externalUserId: user, keyId: values.key }
}

const limitsOf = (values: Values): Limits => ({
  usdMicrosPerDay: values['usd-micros-per-day'],
  usdMicrosPerSession: values['usd-micros-per-session'],
  callsPerMinute: countOf('calls-per-minute', values),
  concurrentSessions: countOf('concurrent-sessions', values),
  maxPrices: (values['max-price'] ?? []).map(ceilingOf),
})

function countOf(
  name: 'calls-per-minute' | 'concurrent-sessions',
  values: Values,
): number | undefined {
  const text = values[name]
  if (text === undefined) return undefined
  if (!/^[1-9][0-9]{0,8}$/.test(text)) throw new UsageError(`--${name} must be a positive integer`)
  return Number(text)
}

function ceilingOf(text: string): PriceCeiling {
  const match = /^([a-z0-9]+)(?::(.+))?=([0-9]+)$/.exec(text)
  if (!match) throw new UsageError('--max-price must have the form TYPE[:APPLICATION]=WEI')
  const [, type = '', app = '', maxWei = ''] = match
  return { type, app, maxWei }
}

const nameOf = ({ user, key }: Values): string => (key === undefined ? `${user}` : `key ${key}`)

function print(limits: Limits | undefined, values: Values): void {
  report(values, limits, () => [nameOf(values), ...linesOf(limits)])
}

function linesOf(limits: Limits | undefined): string[] {
  const lines = [
    lineOf('money per day', limits?.usdMicrosPerDay && usd({ micros: limits.usdMicrosPerDay })),
    lineOf(
      'money per session',
      limits?.usdMicrosPerSession && usd({ micros: limits.usdMicrosPerSession }),
    ),
    lineOf('calls per minute', limits?.callsPerMinute),
    lineOf('concurrent sessions', limits?.concurrentSessions),
    ...(limits?.maxPrices ?? []).map(({ type, app, maxWei }) =>
      lineOf(`wei, ${type}${app === '' ? '' : `, ${app}`}`, maxWei),
    ),
  ].flat()
  return lines.length === 0 ? ['  no limits'] : lines
}

const lineOf = (name: string, value: string | number | undefined): string[] =>
  value === undefined ? [] : [`  ${name.padEnd(24)} at most ${value}`]
