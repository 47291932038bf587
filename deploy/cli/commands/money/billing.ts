import type {
  BillingSettings,
  ReplaceBillingSettingsRequest,
} from '../../../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { type Command, UsageError, changeCore, need, parse, withCore } from '../../command.ts'
import { properties, report } from '../../output.ts'

export const billing: Command = {
  summary: "shows and changes the platform's settings of an app",
  help: {
    usages: [
      {
        syntax: 'tollgate billing show [--app APP] [--json]',
        text: "Prints the platform's cut, the billing mode, the maximum number of end users, and whether the app is platform-owned.",
      },
      {
        syntax: 'tollgate billing cut [--app APP] (PERCENT | none) [--json]',
        text: "Changes the platform's cut of the network fee: a decimal with at most two places, or none. It applies to tickets that are signed a minute later or after that.",
      },
      {
        syntax: 'tollgate billing mode [--app APP] (owner_rollup | merchant) [--json]',
        text: 'Sets who pays: the owner for all users, or each user to the owner.',
      },
      {
        syntax: 'tollgate billing cap [--app APP] (N | default) [--json]',
        text: 'Changes how many active end users the app may have.',
      },
      {
        syntax: 'tollgate billing platform-owned [--app APP] (yes | no) [--json]',
        text: 'Sets whether the app is platform-owned. Platform-owned apps are exempt from the cost side of the activation gate and from the bound of unpaid network cost.',
      },
      {
        syntax: 'tollgate billing serves-every-app [--app APP] (yes | no) [--json]',
        text: 'Sets whether the M2M client of a platform-owned app may create users of every app at the builder API.',
      },
    ],
    examples: [
      './tollgate billing show --app app_0123456789abcdef01234567',
      './tollgate billing cut 12.5 --app app_0123456789abcdef01234567',
    ],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
    })
    const [verb = '', value, ...rest] = positionals
    const { app: clientId } = await need('billing', values, ['app'])
    if (rest.length > 0 || (verb === 'show' && value !== undefined))
      throw new UsageError('billing has too many arguments')
    const change = verb === 'show' ? null : changeOf(verb, value)
    const { settings } = change
      ? await changeCore(values, (core) => core.replaceBillingSettings({ clientId, ...change }))
      : await withCore(values, (core) => core.readBillingSettings({ clientId }))
    report(values, settings, () => (settings ? linesOf(settings) : []))
    return 0
  },
}

const verbs = ['cut', 'mode', 'cap', 'platform-owned', 'serves-every-app']

type Change = Omit<ReplaceBillingSettingsRequest, 'clientId'>

const unchanged: Change = {
  billingMode: undefined,
  endUserCap: undefined,
  isPlatformOwned: undefined,
  servesEveryApp: undefined,
  platformCutPercent: undefined,
}

function changeOf(verb: string, value: string | undefined): Change {
  if (!verbs.includes(verb))
    throw new UsageError(`billing takes "show" or one of: ${verbs.join(', ')}`)
  if (value === undefined) throw new UsageError(`billing ${verb} needs a value`)
  if (verb === 'cut') return { ...unchanged, platformCutPercent: value }
  if (verb === 'mode') return { ...unchanged, billingMode: value }
  if (verb === 'cap') return { ...unchanged, endUserCap: value }
  if (value !== 'yes' && value !== 'no') throw new UsageError(`billing ${verb} takes "yes" or "no"`)
  const name = verb === 'platform-owned' ? 'isPlatformOwned' : 'servesEveryApp'
  return { ...unchanged, [name]: value === 'yes' }
}

function linesOf(settings: BillingSettings): string[] {
  const percent = (text: string | undefined): string => (text === undefined ? 'none' : `${text} %`)
  const rows: [string, string][] = [
    ['app', settings.clientId],
    ['platform cut', percent(settings.platformCutPercent)],
    ...settings.plannedCuts.map((cut): [string, string] => [
      `  from ${cut.since}`,
      percent(cut.percent),
    ]),
    ['billing mode', settings.billingMode],
    [
      'active end users',
      `at most ${settings.endUserCap}${settings.isDefaultCap ? " (the deployment's)" : ''}`,
    ],
    ['platform-owned', settings.isPlatformOwned ? 'yes' : 'no'],
    ['serves every app', settings.servesEveryApp ? 'yes' : 'no'],
  ]
  return properties(rows)
}
