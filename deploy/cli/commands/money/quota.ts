import type { CoreReader } from '../../client.ts'
import { action, createCommand } from '../../command.ts'
import { usd } from '../../money.ts'
import { type Option, UsageError, parsed, text } from '../../options.ts'
import { properties } from '../../output.ts'

/** A whole number. Null, for the word default, resets a quota to the deployment's. */
const number = (flag?: string): Option<string | null | undefined> =>
  parsed(text('N|default', flag === undefined ? {} : { flag }), (word, name) => {
    if (word === 'default') return null
    if (/^(0|[1-9][0-9]{0,14})$/.test(word)) return word
    throw new UsageError(`quota set needs ${name}, a whole number or default`)
  })

/** An owner, by one of its apps or by the account's address. */
const owner = { clientId: text('APP', { flag: 'app' }), email: text('EMAIL') }

const show = action({
  text:
    'Prints the quota of credit that an app has given and its users have not spent, or the number of apps that ' +
    "an account may own. Both forms also print what the owner's account can pay for the calls of its apps, and " +
    'what these hold; no owner pays for platform-owned apps.',
  options: owner,
  oneOf: [['clientId', 'email']],
  read: async (core, { clientId = '', email = '' }): Promise<object> => {
    if (email !== '')
      return {
        ...(await core.accounts.getAccountQuota({ email })),
        ...(await readOwner(core, { clientId, email })),
      }
    const own = await core.creditQuotas.getCreditQuota({ clientId })
    const { settings } = await core.billing.getBillingSettings({ clientId })
    if (settings?.isPlatformOwned) return own
    return { ...own, ...(await readOwner(core, { clientId, email })) }
  },
  lines: linesOf,
})

const readOwner = async (core: CoreReader, owner: { clientId: string; email: string }) =>
  ownerOf(await core.networkQuotas.getNetworkQuota(owner))

interface OwnerAnswer {
  readonly quota?: { readonly maxUsdMicros: string; readonly unpaidUsdMicros: string } | undefined
}

const ownerOf = ({ quota }: OwnerAnswer) => ({
  ownerMoneyUsdMicros: quota?.maxUsdMicros ?? '',
  ownerHeldUsdMicros: quota?.unpaidUsdMicros ?? '',
})

const set = action({
  text: "Changes the quota of an app (--usd-micros) or of an account (--apps). N is a whole number, or default for the deployment's quota. The change is written to the audit log.",
  options: {
    ...owner,
    maxUsdMicros: number('usd-micros'),
    appsMax: number('apps'),
  },
  oneOf: [
    ['clientId', 'email'],
    ['maxUsdMicros', 'appsMax'],
  ],
  change: async (core, { clientId = '', email = '', ...quota }): Promise<object> => {
    if (email === '') {
      if (quota.maxUsdMicros === undefined)
        throw new UsageError('quota set --app needs --usd-micros')
      const maxUsdMicros = quota.maxUsdMicros ?? undefined
      return core.creditQuotas.updateCreditQuota({ clientId, maxUsdMicros })
    }
    if (quota.appsMax === undefined) throw new UsageError('quota set --email needs --apps')
    const appsMax = quota.appsMax === null ? undefined : Number(quota.appsMax)
    return core.accounts.updateAccountQuota({ email, appsMax })
  },
  lines: linesOf,
})

function linesOf(answer: object): string[] {
  return properties(
    Object.entries(answer).map(([name, value]) =>
      name.endsWith('UsdMicros')
        ? [name.slice(0, -'UsdMicros'.length), usd({ micros: String(value) })]
        : [name, String(value)],
    ),
  )
}

export const quota = createCommand('quota', {
  summary: 'shows and changes the quotas of owners and apps',
  examples: [
    './tollgate quota show --app app_0123456789abcdef01234567',
    './tollgate quota set --email ada@example.com --apps 25',
  ],
  actions: { show, set },
})
