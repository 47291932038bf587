import {
  type Command,
  type Target,
  UsageError,
  changeCore,
  parse,
  withCore,
} from '../../command.ts'
import { usd } from '../../money.ts'
import { printJson, printLines, properties } from '../../output.ts'

export const quota: Command = {
  summary: 'shows and raises what an owner and an app may have in all',
  help: {
    usages: [
      {
        syntax: 'tollgate quota show (--app APP | --email EMAIL) [--json]',
        text: 'Prints how much credit an app may have given and its users have not spent, or how many apps an account may own.',
      },
      {
        syntax:
          'tollgate quota set (--app APP --usd-micros N | --email EMAIL --apps N | ... default) [--json]',
        text: 'Gives an app or an account another quota. N is a whole number, or default for that of the deployment. The audit log has it.',
      },
    ],
    examples: [
      'npx tollgate quota show --app app_0123456789abcdef01234567',
      'npx tollgate quota set --email ada@example.com --apps 25',
    ],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      email: { type: 'string' },
      apps: { type: 'string' },
      'usd-micros': { type: 'string' },
      json: { type: 'boolean' },
    })
    const [verb, ...rest] = positionals
    const { app, email, apps, 'usd-micros': micros } = values
    if ((verb !== 'show' && verb !== 'set') || rest.length > 0)
      throw new UsageError('quota takes "show" or "set"')
    const print = values.json ? printJson : (answer: object) => printLines(linesOf(answer))
    if (app !== undefined)
      print(await ofApp(values, app, verb === 'set' ? numberOf(micros, '--usd-micros') : undefined))
    else if (email !== undefined)
      print(await ofAccount(values, email, verb === 'set' ? numberOf(apps, '--apps') : undefined))
    else throw new UsageError('quota needs --app or --email')
    return 0
  },
}

/** Reads the quota of an app, or changes it: null means the deployment's. */
const ofApp = (values: Target, clientId: string, max: string | null | undefined) =>
  max === undefined
    ? withCore(values, (core) => core.readCreditQuota({ clientId }))
    : changeCore(values, (core) =>
        core.replaceCreditQuota({ clientId, maxUsdMicros: max ?? undefined }),
      )

const ofAccount = (values: Target, email: string, max: string | null | undefined) =>
  max === undefined
    ? withCore(values, (core) => core.readAccountQuota({ email }))
    : changeCore(values, (core) =>
        core.replaceAccountQuota({ email, appsMax: max === null ? undefined : Number(max) }),
      )

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
