import { readFile } from 'node:fs/promises'
import { text as readAll } from 'node:stream/consumers'
import type { TokenCheck } from '../../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import { action, createCommand } from '../../command.ts'
import { UsageError, app, argument, list as repeated, text } from '../../options.ts'
import { table } from '../../output.ts'

const list = action({
  text: "Lists the issuers whose tokens identify the app's users.",
  options: { clientId: app },
  read: async (core, request) => (await core.issuers.listTrustedIssuers(request)).issuers,
  lines: (issuers) =>
    table(
      issuers,
      [
        'id',
        ['issuer', ({ rules }) => rules?.issuer],
        ['audiences', ({ rules }) => rules?.audiences.join(' ') || 'any'],
        [
          'client',
          ({ rules }) =>
            rules?.clientClaim
              ? `${rules.clientClaim} is ${rules.clientValues.join(' or ')}`
              : 'any',
        ],
        ['user claim', ({ rules }) => `${rules?.userPrefix ?? ''}${rules?.userClaim ?? ''}`],
      ],
      'the app does not trust an issuer of its own',
    ),
})

const add = action({
  text:
    'Trusts tokens whose iss is ISSUER, with one of the audiences, and with one of the values in the client claim; ' +
    'at least one of both is needed. docs/trusted-issuers.md has an example for each of the usual providers.',
  options: {
    issuer: argument('ISSUER'),
    clientId: app,
    audiences: repeated('TEXT', {
      flag: 'audience',
      meaning: 'An audience that means this app; repeat it for more.',
    }),
    clientClaim: text('CLAIM', {
      fallback: '',
      meaning: 'The claim that names the client: azp, client_id, ...',
    }),
    clientValues: repeated('TEXT', {
      flag: 'client-value',
      meaning: 'The value of that claim for this app; repeat it for more.',
    }),
    userClaim: text('CLAIM', {
      fallback: '',
      meaning: 'The claim that becomes externalUserId; sub by default.',
    }),
    userPrefix: text('TEXT', {
      fallback: '',
      meaning: 'Prefix of that claim in externalUserId.',
    }),
    jwksUri: text('URL', {
      fallback: '',
      meaning: 'Address of the keys if the issuer has no discovery document.',
    }),
  },
  change: async (core, { clientId, ...rules }) =>
    (await core.issuers.createTrustedIssuer({ clientId, rules })).issuer,
  lines: (issuer) => [`trusted: ${issuer?.id ?? ''}`],
})

const remove = action({
  text: 'Ends the trust and every session that it admitted. ID is the one in the list.',
  options: { id: argument('ID'), clientId: app },
  change: (core, request) => core.issuers.deleteTrustedIssuer(request),
  lines: ({ effectiveBy }) => [`removed; the last permission ends by ${effectiveBy}`],
})

const check = action({
  text:
    'Reads a token from the standard input, or from PATH, and shows the result of each rule. The token is ' +
    'neither stored nor logged. Exits with 1 when the token would be refused.',
  options: {
    clientId: app,
    file: text('PATH', {
      fallback: '-',
      meaning: 'File with the token; - for the standard input.',
    }),
  },
  read: async (core, { clientId, file }) => {
    const input = file === '-' ? await readAll(process.stdin) : await readFile(file, 'utf8')
    const token = input.trim()
    if (token === '') throw new UsageError('issuer check needs a token on its standard input')
    return (await core.issuers.checkForeignToken({ clientId, token })).check
  },
  lines: (answer) => (answer ? linesOf(answer) : []),
  isFailure: (answer) => !answer?.accepted,
})

function linesOf({ accepted, rules, warnings, ...check }: TokenCheck): string[] {
  const { externalUserId, userStatus, expiresAt } = check
  const user = externalUserId === '' ? 'nobody' : `${externalUserId} (${userStatus})`
  return [
    ...table(rules, [
      'rule',
      ['', ({ passed }) => (passed ? 'ok' : 'NO')],
      ['claims of the token', 'detail'],
    ]),
    '',
    `It identifies ${user}${expiresAt === '' ? '' : `, until ${expiresAt}`}.`,
    accepted ? 'It would be accepted.' : 'It would be refused.',
    ...warnings.map((warning) => `Warning: ${warning}.`),
  ]
}

export const issuer = createCommand('issuer', {
  summary: 'adds, lists, removes and checks identity providers that an app trusts',
  examples: [
    './tollgate issuer add https://shop.eu.auth0.com/ --audience https://api.shop.example --client-claim azp --client-value shop-web --app app_0123456789abcdef01234567',
    './tollgate issuer check --app app_0123456789abcdef01234567 < token.txt',
  ],
  actions: { list, add, remove, check },
})
