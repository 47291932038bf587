import { action, createCommand } from '../../command.ts'
import { app, argument, idempotencyKey, integer, text } from '../../options.ts'
import { table } from '../../output.ts'

const list = action({
  text: 'Lists the secrets that are valid, without their text.',
  options: { clientId: app },
  read: async (core, request) => (await core.appSecrets.listAppSecrets(request)).secrets,
  lines: (secrets) =>
    table(
      secrets,
      [
        'id',
        'purpose',
        ['created', ({ createdAt }) => createdAt.slice(0, 10)],
        ['ends', ({ expiresAt }) => expiresAt ?? 'never'],
      ],
      'the app has no signer of its own',
    ),
})

const create = action({
  text:
    "Makes a secret for the app's own signer, to request decisions about the app's users or to push their " +
    'events, and prints it once; at most five of each purpose. Older secrets of the purpose stay valid or, ' +
    'with --overlap-seconds, end after that time.',
  options: {
    clientId: app,
    purpose: text('decisions|events', {
      fallback: 'decisions',
      meaning: 'What it is for; decisions by default.',
    }),
    overlapSeconds: integer('N', {
      from: 0,
      meaning: 'From 0, which ends the older secrets at once, to 2592000.',
    }),
    idempotencyKey: idempotencyKey('makes no second secret'),
  },
  change: (core, request) => core.appSecrets.createAppSecret(request),
  lines: ({ secret, oldSecretsExpireAt }, { purpose }) => [
    `secret for ${purpose} (shown once): ${secret}`,
    ...(oldSecretsExpireAt === undefined ? [] : [`older secrets end at ${oldSecretsExpireAt}`]),
  ],
})

const revoke = action({
  text: 'Revokes a secret at once. ID is the one in the list.',
  options: { id: argument('ID'), clientId: app },
  change: async (core, { clientId, id }) => {
    await core.appSecrets.revokeAppSecret({ clientId, id })
    return { id, revoked: true }
  },
  lines: ({ id }) => [`${id} has ended`],
})

export const signerSecret = createCommand('signer-secret', {
  summary: "lists, makes and revokes secrets of an app's own signer",
  note: 'Signers that sign for several apps are made by "tollgate signer".',
  examples: [
    './tollgate signer-secret create --app app_0123456789abcdef01234567 --overlap-seconds 3600',
    './tollgate signer-secret list --app app_0123456789abcdef01234567',
  ],
  actions: { list, create, revoke },
})
