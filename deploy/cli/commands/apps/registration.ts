import { action, createCommand } from '../../command.ts'
import { app, integer, required, text } from '../../options.ts'
import { table } from '../../output.ts'

const create = action({
  text:
    'Makes an initial access token (RFC 7591): with it N clients (1) may register themselves with the app at the edge, ' +
    'within N days (7). It is shown once.',
  options: {
    clientId: app,
    label: text('TEXT', { fallback: '' }),
    usesMax: integer('N', { flag: 'uses', from: 1, fallback: 1 }),
    days: integer('N', { from: 1, fallback: 7 }),
  },
  change: (core, request) => core.registrationTokens.createRegistrationToken(request),
  lines: ({ token, registrationToken }) => [
    `${token}   (shown once)`,
    `  id       ${registrationToken?.id ?? ''}`,
    `  expires  ${registrationToken?.expiresAt ?? ''}`,
  ],
})

const list = action({
  text: 'Lists the tokens of an app and how many clients registered with each, the oldest first.',
  options: { clientId: app },
  read: (core, request) => core.registrationTokens.listRegistrationTokens(request),
  lines: ({ tokens }) =>
    table(
      tokens,
      [
        'id',
        ['registered', ({ uses, usesMax }) => `${uses} of ${usesMax}`],
        ['expires', 'expiresAt'],
        ['revoked', 'revokedAt'],
        'label',
      ],
      'no registration tokens',
    ),
})

const revoke = action({
  text: 'Revokes a token. Clients that registered with it stay.',
  options: { clientId: app, id: required('ID') },
  change: async (core, { clientId, id }) => {
    await core.registrationTokens.revokeRegistrationToken({ clientId, id })
    return { id, revoked: true }
  },
  lines: ({ id }) => [`${id} is revoked`],
})

export const registration = createCommand('registration', {
  summary: 'makes, lists and revokes tokens for client registration with an app',
  examples: [
    './tollgate registration token create --app app_0123456789abcdef01234567 --uses 20 --days 30',
    './tollgate registration token list --app app_0123456789abcdef01234567 --json',
  ],
  actions: { 'token create': create, 'token list': list, 'token revoke': revoke },
})
