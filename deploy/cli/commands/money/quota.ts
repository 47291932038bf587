import {
  type Command,
  type Target,
  UsageError,
  changeCore,
  parse,
  withCore,
} from '../../command.ts'
import type { ReadNetworkQuotaResponse } from '../../../../proto/gen/ts-proto/tollgate/allowances/v1/quotas.ts'
import { usd } from '../../money.ts'
import { printJson, printLines, properties } from '../../output.ts'

export const quota: Command = {
  summary: 'shows and changes the quotas of owners and apps',
  help: {
    usages: [
      {
        syntax: 'tollgate quota show (--app APP | --email EMAIL) [--json]',
        text:
          'Prints the quota of credit that an app has given and its users have not spent, or the number of apps that ' +
          "an account may own. Both forms also print the owner's unpaid network cost of 30 days, with lent and " +
          'pending money; platform-owned apps are exempt.',
      },
      {
        syntax:
          'tollgate quota set (--app APP --usd-micros N | --email EMAIL --apps N | (--app APP | --email EMAIL) --network-usd-micros N | ... default) [--json]',
        text: "Changes a quota of an app or an account. N is a whole number, or default for the deployment's quota. The change is written to the audit log.",
      },
    ],
    examples: [
      './tollgate quota show --app app_0123456789abcdef01234567',
      './tollgate quota set --email ada@example.com --apps 25',
      './tollgate quota set --email ada@example.com --network-usd-micros 200000000',
    ],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      email: { type: 'string' },
      apps: { type: 'string' },
      'usd-micros': { type: 'string' },
      'network-usd-micros': { type: 'string' },
      json: { type: 'boolean' },
    })
    const [verb, ...rest] = positionals
    const { app, email } = values
    if ((verb !== 'show' && verb !== 'set') || rest.length > 0)
      throw new UsageError('quota takes "show" or "set"')
    if ((app === undefined) === (email === undefined))
      throw new UsageError('quota needs --app or --email')
    const owner = { clientId: app ?? '', email: email ?? '' }
    const answer = verb === 'show' ? await show(values, owner) : await set(values, owner)
    if (values.json) printJson(answer)
    else printLines(linesOf(answer))
    return 0
  },
}

/** An owner, by one of its apps or by the account's address; the other is empty. */
interface Owner {
  readonly clientId: string
  readonly email: string
}

interface Values extends Target {
  readonly apps?: string | undefined
  readonly 'usd-micros'?: string | undefined
  readonly 'network-usd-micros'?: string | undefined
}

const show = (values: Target, { clientId, email }: Owner): Promise<object> =>
  withCore(values, async (core) => {
    const own =
      email === ''
        ? await core.readCreditQuota({ clientId })
        : await core.readAccountQuota({ email })
    const { settings } = email === '' ? await core.readBillingSettings({ clientId }) : {}
    if (settings?.isPlatformOwned) return own
    return { ...own, ...networkOf(await core.readNetworkQuota({ clientId, email })) }
  })

/** Changes one quota; null resets it to the deployment's. */
async function set(values: Values, owner: Owner): Promise<object> {
  const network = values['network-usd-micros']
  if (network !== undefined) {
    const max = numberOf(network, '--network-usd-micros')
    return networkOf(
      await changeCore(values, (core) =>
        core.replaceNetworkQuota({ ...owner, maxUsdMicros: max ?? undefined }),
      ),
    )
  }
  const { clientId, email } = owner
  if (email === '') {
    const max = numberOf(values['usd-micros'], '--usd-micros')
    return changeCore(values, (core) =>
      core.replaceCreditQuota({ clientId, maxUsdMicros: max ?? undefined }),
    )
  }
  const max = numberOf(values.apps, '--apps')
  return changeCore(values, (core) =>
    core.replaceAccountQuota({ email, appsMax: max === null ? undefined : Number(max) }),
  )
}

const networkOf = ({ quota }: ReadNetworkQuotaResponse) => ({
  networkMaxUsdMicros: quota?.maxUsdMicros ?? '',
  networkUnpaidUsdMicros: quota?.unpaidUsdMicros ?? '',
})

function numberOf(text: string | undefined, flag: string): string | null {
  if (text === 'default') return null
  if (text !== undefined && /^(0|[1-9][0-9]{0,14})$/.test(text)) return text
  throw new UsageError(`quota set needs ${flag}, a whole number or default`)
}

const linesOf = (answer: object): string[] =>
  properties(
    Object.entries(answer).map(([name, value]): [string, string] =>
      name.endsWith('UsdMicros')
        ? [name.slice(0, -'UsdMicros'.length), usd({ micros: String(value) })]
        : [name, String(value)],
    ),
  )
