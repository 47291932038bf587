import type { Grant } from '../../../../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import { type Command, changeCore, need, parseOptions, runAction, withCore } from '../../command.ts'
import { dollars, usd } from '../../money.ts'
import { printJson, printLines, printable, report, table } from '../../output.ts'

const subject = {
  app: { type: 'string' },
  user: { type: 'string' },
} as const

export const grant: Command = {
  summary: 'lists and gives credit to a user',
  help: {
    usages: [
      {
        syntax: 'tollgate grant list [--app APP] --user EXTERNAL_USER_ID [--json]',
        text: 'Lists the active credits of a user, the oldest first, with their remaining amounts.',
      },
      {
        syntax:
          'tollgate grant give [--app APP] --user EXTERNAL_USER_ID --usd-micros N [--source SOURCE] [--feature KEY] ' +
          '[--key TEXT] [--json]',
        text:
          "Adds N USD micros (1000000 is one dollar) to a user's balance. A credit never expires and is never " +
          "changed; correct a mistake with tollgate adjust. It counts toward the app's quota of credit (tollgate " +
          'quota).',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [
          ['--source SOURCE', 'Kind of credit: manual (default), trial, promo or plan_adjustment.'],
          [
            '--feature KEY',
            'The only feature that the credit pays for: a pipeline, or pipeline:modelId. By default it pays for every feature.',
          ],
          ['--key TEXT', 'An idempotency key: a repeat with the same key gives no second credit.'],
        ],
      },
    ],
    examples: [
      './tollgate grant give --app app_0123456789abcdef01234567 --user ada --usd-micros 2500000 --key order-17',
      './tollgate grant list --app app_0123456789abcdef01234567 --user ada',
    ],
  },
  run: runAction('grant', { list, give }),
}

async function list(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, subject)
  const { app, user } = await need('grant list', values, ['app', 'user'])
  const { allowance } = await withCore(values, (core) =>
    core.readAllowance({ clientId: app, externalUserId: user }),
  )
  const columns = ['created', 'USD', 'left', 'source', 'feature', 'ends', 'id']
  report(values, allowance, () => [
    ...table(columns, (allowance?.grants ?? []).map(rowOf), 'no credits'),
    `${printable(user)} has ${usd({ micros: allowance?.balanceUsdMicros })} for any feature`,
  ])
}

async function give(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, {
    ...subject,
    'usd-micros': { type: 'string' },
    source: { type: 'string' },
    feature: { type: 'string' },
    key: { type: 'string' },
  })
  const flags = await need('grant give', values, ['app', 'user', 'usd-micros'])
  const answer = await changeCore(values, (core) =>
    core.giveGrant({
      clientId: flags.app,
      externalUserId: flags.user,
      amountUsdMicros: flags['usd-micros'],
      source: values.source ?? 'manual',
      featureKey: values.feature,
      idempotencyKey: values.key,
    }),
  )
  if (values.json) return printJson(answer)
  const { grant: credit, allowance } = answer
  const feature = credit?.featureKey === undefined ? '' : ` for ${printable(credit.featureKey)}`
  printLines([
    `${credit?.id}  ${usd({ micros: credit?.amountUsdMicros })}${feature}; ${printable(flags.user)} has ` +
      `${usd({ micros: allowance?.balanceUsdMicros })} for any feature now`,
  ])
}

const rowOf = (credit: Grant): string[] => [
  credit.createdAt.slice(0, 10),
  dollars({ micros: credit.amountUsdMicros }),
  dollars({ micros: credit.remainingUsdMicros }),
  credit.source,
  credit.featureKey ?? 'any',
  credit.expiresAt?.slice(0, 10) ?? 'never',
  credit.id,
]
