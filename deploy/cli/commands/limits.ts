import type { PriceCeiling } from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type { Limits } from '../../../proto/gen/ts-proto/tollgate/balances/v1/limits.ts'
import { action, createCommand } from '../command.ts'
import { usd } from '../money.ts'
import { type Option, UsageError, appUser, author, integer, list, text } from '../options.ts'

const subject = { ...appUser, keyId: text('KEY_ID', { flag: 'key' }) }

const maxPrices: Option<PriceCeiling[]> = {
  ...list('TYPE[:APPLICATION]=WEI', {
    flag: 'max-price',
    meaning:
      'The highest price of live, lv2v or fixed sessions, of one application or of all: wei for one second, 720p pixel second or unit. May be repeated; if several match a call, the lowest applies.',
  }),
  convert: (texts, name) => texts.map((each) => ceilingOf(each, name)),
}

function ceilingOf(word: string, name: string): PriceCeiling {
  const match = /^([a-z0-9]+)(?::(.+))?=([0-9]+)$/.exec(word)
  if (!match) throw new UsageError(`${name} must have the form TYPE[:APPLICATION]=WEI`)
  const [, type = '', app = '', maxWei = ''] = match
  return { type, app, maxWei }
}

const show = action({
  text: 'Prints the limits of a user or, with --key, those of one of its keys.',
  options: subject,
  read: async (core, request) => (await core.limits.getLimits(request)).limits,
  lines: linesOf,
})

const set = action({
  text:
    'Replaces all limits of a user or key by these, from now on: unsettled calls count, earlier spending does ' +
    'not. A call must keep both the limits of its user and those of its key.',
  options: {
    ...subject,
    usdMicrosPerDay: text('N', { meaning: 'The most that may be spent on a day (UTC).' }),
    usdMicrosPerSession: text('N', { meaning: 'The most that may be spent in one session.' }),
    callsPerMinute: integer('N', {
      from: 1,
      meaning: 'Calls that are allowed in each minute of the clock.',
    }),
    concurrentSessions: integer('N', {
      from: 1,
      meaning: 'Sessions at the same time: those with a call within the last 60 seconds.',
    }),
    maxPrices,
    author,
  },
  change: async (core, { clientId, externalUserId, keyId, author, ...limits }) =>
    (await core.limits.updateLimits({ clientId, externalUserId, keyId, author, limits })).limits,
  lines: linesOf,
})

const clear = action({
  text: 'Removes all limits of a user or key, and their counters.',
  options: { ...subject, author },
  change: async (core, request) => {
    await core.limits.deleteLimits(request)
    return { limits: null }
  },
  lines: (_, values) => [`${nameOf(values)} has no limits now`],
})

interface Subject {
  readonly externalUserId: string
  readonly keyId: string | undefined
}

const nameOf = ({ externalUserId, keyId }: Subject): string =>
  keyId === undefined ? externalUserId : `key ${keyId}`

function linesOf(limits: Limits | undefined, subject: Subject): string[] {
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
  return [nameOf(subject), ...(lines.length === 0 ? ['  no limits'] : lines)]
}

const lineOf = (name: string, value: string | number | undefined): string[] =>
  value === undefined ? [] : [`  ${name.padEnd(24)} at most ${value}`]

export const limits = createCommand('limits', {
  summary: 'shows, sets and removes limits of a user or key',
  examples: [
    './tollgate limits set --app app_0123456789abcdef01234567 --user ada --usd-micros-per-day 2000000 --max-price live=1300',
    './tollgate limits show --app app_0123456789abcdef01234567 --user ada',
  ],
  actions: { show, set, clear },
})
