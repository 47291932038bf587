import type {
  BillingSettings,
  UpdateBillingSettingsRequest,
} from '../../../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { type Action, action, createCommand } from '../../command.ts'
import { type Option, app, argument, parseYesNo } from '../../options.ts'
import { properties } from '../../output.ts'

/** Changes one setting to the argument. */
const change = <Key extends keyof UpdateBillingSettingsRequest>(
  key: Key,
  value: Option<UpdateBillingSettingsRequest[Key]>,
  text: string,
): Action =>
  action({
    text,
    options: { clientId: app, value },
    change: async (core, { clientId, value }) =>
      (await core.billing.updateBillingSettings({ ...unchanged, clientId, [key]: value })).settings,
    lines: linesOf,
  })

const unchanged = {
  billingMode: undefined,
  endUserCap: undefined,
  isPlatformOwned: undefined,
  servesEveryApp: undefined,
  platformCutPercent: undefined,
}

const yesNo: Option<boolean> = {
  ...argument('(yes | no)'),
  convert: ([word = ''], name) => parseYesNo(word, name),
}

const percentOf = (text: string | undefined): string => (text === undefined ? 'none' : `${text} %`)

const linesOf = (settings: BillingSettings | undefined): string[] =>
  settings === undefined
    ? []
    : properties([
        ['app', settings.clientId],
        ['platform cut', percentOf(settings.platformCutPercent)],
        ...settings.plannedCuts.map(
          ({ since, percent }) => [`  from ${since}`, percentOf(percent)] as const,
        ),
        ['billing mode', settings.billingMode],
        [
          'active end users',
          `at most ${settings.endUserCap}${settings.isDefaultCap ? " (the deployment's)" : ''}`,
        ],
        ['platform-owned', settings.isPlatformOwned],
        ['serves every app', settings.servesEveryApp],
      ])

export const billing = createCommand('billing', {
  summary: "shows and changes the platform's settings of an app",
  examples: [
    './tollgate billing show --app app_0123456789abcdef01234567',
    './tollgate billing cut 12.5 --app app_0123456789abcdef01234567',
  ],
  actions: {
    show: action({
      text: "Prints the platform's cut, the billing mode, the maximum number of end users, and whether the app is platform-owned.",
      options: { clientId: app },
      read: async (core, request) => (await core.billing.getBillingSettings(request)).settings,
      lines: linesOf,
    }),
    cut: change(
      'platformCutPercent',
      argument('(PERCENT | none)'),
      "Changes the platform's cut of the network fee: a decimal with at most two places, or none. It applies to tickets that are signed a minute later or after that.",
    ),
    mode: change(
      'billingMode',
      argument('(owner_rollup | merchant)'),
      'Sets who pays: the owner for all users, or each user to the owner.',
    ),
    cap: change(
      'endUserCap',
      argument('(N | default)'),
      'Changes how many active end users the app may have.',
    ),
    'platform-owned': change(
      'isPlatformOwned',
      yesNo,
      'Sets whether the app is platform-owned. Platform-owned apps are exempt from the cost side of the activation gate, and no owner pays for them.',
    ),
    'serves-every-app': change(
      'servesEveryApp',
      yesNo,
      'Sets whether the M2M client of a platform-owned app may create users of every app at the builder API.',
    ),
  },
})
