import { action, createCommand } from '../../command.ts'
import { dollars, usd } from '../../money.ts'
import { appUser, idempotencyKey, required, text } from '../../options.ts'
import { table } from '../../output.ts'

const list = action({
  text: 'Lists the active credits of a user, the oldest first, with their remaining amounts.',
  options: appUser,
  read: async (core, request) => (await core.allowances.getAllowance(request)).allowance,
  lines: (allowance, { externalUserId }) => [
    ...table(
      allowance?.grants ?? [],
      [
        ['created', ({ createdAt }) => createdAt.slice(0, 10)],
        ['USD', ({ amountUsdMicros: micros }) => dollars({ micros })],
        ['left', ({ remainingUsdMicros: micros }) => dollars({ micros })],
        'source',
        ['feature', ({ featureKey }) => featureKey ?? 'any'],
        ['ends', ({ expiresAt }) => expiresAt?.slice(0, 10) ?? 'never'],
        'id',
      ],
      'no credits',
    ),
    `${externalUserId} has ${usd({ micros: allowance?.balanceUsdMicros })} for any feature`,
  ],
})

const give = action({
  text:
    "Adds N USD micros (1000000 is one dollar) to a user's balance. A credit never expires and is never " +
    "changed; correct a mistake with tollgate adjust. It counts toward the app's quota of credit (tollgate " +
    'quota).',
  options: {
    ...appUser,
    amountUsdMicros: required('N', { flag: 'usd-micros' }),
    source: text('SOURCE', {
      meaning: 'Kind of credit: manual (default), trial, promo or plan_adjustment.',
      fallback: 'manual',
    }),
    featureKey: text('KEY', {
      flag: 'feature',
      meaning:
        'The only feature that the credit pays for: a pipeline, or pipeline:modelId. By default it pays for every feature.',
    }),
    idempotencyKey: idempotencyKey('gives no second credit'),
  },
  change: (core, request) => core.allowances.createGrant(request),
  lines: ({ grant: credit, allowance }, { externalUserId }) => {
    const feature = credit?.featureKey === undefined ? '' : ` for ${credit.featureKey}`
    return [
      `${credit?.id}  ${usd({ micros: credit?.amountUsdMicros })}${feature}; ${externalUserId} has ` +
        `${usd({ micros: allowance?.balanceUsdMicros })} for any feature now`,
    ]
  },
})

export const grant = createCommand('grant', {
  summary: 'lists and gives credit to a user',
  examples: [
    './tollgate grant give --app app_0123456789abcdef01234567 --user ada --usd-micros 2500000 --key order-17',
    './tollgate grant list --app app_0123456789abcdef01234567 --user ada',
  ],
  actions: { list, give },
})
