import { readFile } from 'node:fs/promises'
import { text as readAll } from 'node:stream/consumers'
import type {
  TokenCheck,
  TrustedIssuer,
} from '../../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import {
  type Command,
  UsageError,
  changeCore,
  need,
  parse,
  parseOptions,
  runAction,
  withCore,
} from '../../command.ts'
import { printJson, printLines, report, table } from '../../output.ts'

const options = {
  app: { type: 'string' },
  audience: { type: 'string', multiple: true },
  'client-claim': { type: 'string' },
  'client-value': { type: 'string', multiple: true },
  'user-claim': { type: 'string' },
  'user-prefix': { type: 'string' },
  'jwks-uri': { type: 'string' },
} as const

export const issuer: Command = {
  summary: 'adds, lists, removes and checks identity providers that an app trusts',
  help: {
    usages: [
      {
        syntax: 'tollgate issuer list [--app APP] [--json]',
        text: "Lists the issuers whose tokens identify the app's users.",
      },
      {
        syntax:
          'tollgate issuer add ISSUER [--app APP] [--audience TEXT]... [--client-claim CLAIM --client-value TEXT...] [--user-claim CLAIM] [--user-prefix TEXT] [--jwks-uri URL] [--json]',
        text:
          'Trusts tokens whose iss is ISSUER, with one of the audiences, and with one of the values in the client claim; ' +
          'at least one of both is needed. docs/trusted-issuers.md has an example for each of the usual providers.',
      },
      {
        syntax: 'tollgate issuer remove ID [--app APP] [--json]',
        text: 'Ends the trust and every session that it admitted. ID is the one in the list.',
      },
      {
        syntax: 'tollgate issuer check [--app APP] [--file PATH] [--json]',
        text:
          'Reads a token from the standard input, or from PATH, and shows the result of each rule. The token is ' +
          'neither stored nor logged. Exits with 1 when the token would be refused.',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [
          ['--audience TEXT', 'An audience that means this app; repeat it for more.'],
          ['--client-claim CLAIM', 'The claim that names the client: azp, client_id, ...'],
          ['--client-value TEXT', 'The value of that claim for this app; repeat it for more.'],
          ['--user-claim CLAIM', 'The claim that becomes externalUserId; sub by default.'],
          ['--user-prefix TEXT', 'Prefix of that claim in externalUserId.'],
          ['--jwks-uri URL', 'Address of the keys if the issuer has no discovery document.'],
          ['--file PATH', 'File with the token; - for the standard input.'],
        ],
      },
    ],
    examples: [
      './tollgate issuer add https://shop.eu.auth0.com/ --audience https://api.shop.example --client-claim azp --client-value shop-web --app app_0123456789abcdef01234567',
      './tollgate issuer check --app app_0123456789abcdef01234567 < token.txt',
    ],
  },
  run: runAction('issuer', { list, add, remove, check }),
}

async function list(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, { app: { type: 'string' } })
  const { app: clientId } = await need('issuer list', values, ['app'])
  const { issuers } = await withCore(values, (core) => core.listAppTrustedIssuers({ clientId }))
  const columns = ['id', 'issuer', 'audiences', 'client', 'user claim']
  report(values, issuers, () =>
    table(columns, issuers.map(rowOf), 'the app does not trust an issuer of its own'),
  )
}

async function add(argv: readonly string[]): Promise<void> {
  const { values, positionals } = parse(argv, options)
  const [address, ...rest] = positionals
  if (address === undefined || rest.length > 0) throw new UsageError('issuer add needs one ISSUER')
  const { app: clientId } = await need('issuer add', values, ['app'])
  const rules = {
    issuer: address,
    audiences: values.audience ?? [],
    clientClaim: values['client-claim'] ?? '',
    clientValues: values['client-value'] ?? [],
    userClaim: values['user-claim'] ?? '',
    userPrefix: values['user-prefix'] ?? '',
    jwksUri: values['jwks-uri'] ?? '',
  }
  const answer = await changeCore(values, (core) => core.addAppTrustedIssuer({ clientId, rules }))
  if (values.json) return printJson(answer.issuer)
  printLines([`trusted: ${answer.issuer?.id ?? ''}`])
}

async function remove(argv: readonly string[]): Promise<void> {
  const { values, positionals } = parse(argv, {
    app: { type: 'string' },
  })
  const [id, ...rest] = positionals
  if (id === undefined || rest.length > 0) throw new UsageError('issuer remove needs one ID')
  const { app: clientId } = await need('issuer remove', values, ['app'])
  const answer = await changeCore(values, (core) => core.removeAppTrustedIssuer({ clientId, id }))
  if (values.json) return printJson(answer)
  printLines([`removed; the last permission ends by ${answer.effectiveBy}`])
}

async function check(argv: readonly string[]): Promise<number> {
  const values = parseOptions(argv, {
    app: { type: 'string' },
    file: { type: 'string' },
  })
  const { app: clientId } = await need('issuer check', values, ['app'])
  const { file = '-' } = values
  const token = (file === '-' ? await readAll(process.stdin) : await readFile(file, 'utf8')).trim()
  if (token === '') throw new UsageError('issuer check needs a token on its standard input')
  const answer = await withCore(values, (core) => core.checkAppForeignToken({ clientId, token }))
  report(values, answer.check, () => (answer.check ? linesOf(answer.check) : []))
  return answer.check?.accepted ? 0 : 1
}

function linesOf({ accepted, rules, warnings, ...check }: TokenCheck): string[] {
  const { externalUserId, userStatus, expiresAt } = check
  const outcomes = rules.map(({ rule, passed, detail }) => [rule, passed ? 'ok' : 'NO', detail])
  const user = externalUserId === '' ? 'nobody' : `${externalUserId} (${userStatus})`
  return [
    ...table(['rule', '', 'claims of the token'], outcomes),
    '',
    `It identifies ${user}${expiresAt === '' ? '' : `, until ${expiresAt}`}.`,
    accepted ? 'It would be accepted.' : 'It would be refused.',
    ...warnings.map((warning) => `Warning: ${warning}.`),
  ]
}

function rowOf({ id, rules }: TrustedIssuer): string[] {
  const { issuer: address = '', audiences = [], clientClaim, clientValues = [] } = rules ?? {}
  const client = clientClaim ? `${clientClaim} is ${clientValues.join(' or ')}` : 'any'
  const user = `${rules?.userPrefix ?? ''}${rules?.userClaim ?? ''}`
  return [id, address, audiences.join(' ') || 'any', client, user]
}
