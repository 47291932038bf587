import type { RedirectUris } from '../../../../proto/gen/ts-proto/tollgate/identity/v1/operators.ts'
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
import { report, table } from '../../output.ts'

const options = {
  app: { type: 'string' },
  logout: { type: 'boolean' },
} as const

export const redirectUri: Command = {
  summary: 'lists, adds and removes redirect URIs of an app',
  help: {
    usages: [
      {
        syntax: 'tollgate redirect-uri list [--app APP] [--json]',
        text: "Lists the redirect URIs of the app's public client, for logins and for logouts.",
      },
      {
        syntax: 'tollgate redirect-uri add URI [--app APP] [--logout] [--json]',
        text:
          'Allows URI as redirect URI of logins: https, http on localhost, or a private-use scheme such as ' +
          'com.example.app:/done; at most 20. It is compared as text, so write it exactly as the app sends it.',
      },
      {
        syntax: 'tollgate redirect-uri remove URI [--app APP] [--logout] [--json]',
        text: 'Removes URI, so that logins can no longer redirect to it.',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [
          ['--logout', 'The URI is for logouts (post_logout_redirect_uris) instead of logins.'],
        ],
      },
    ],
    examples: [
      './tollgate redirect-uri add https://shop.example/callback --app app_0123456789abcdef01234567',
      './tollgate redirect-uri add https://shop.example/bye --logout --app app_0123456789abcdef01234567',
      './tollgate redirect-uri list --app app_0123456789abcdef01234567',
    ],
  },
  run: runAction('redirect-uri', { list, add, remove }),
}

async function list(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, { app: { type: 'string' } })
  const { app: clientId } = await need('redirect-uri list', values, ['app'])
  const answer = await withCore(values, (core) => core.listRedirectUris({ clientId }))
  print(answer.redirectUris, values)
}

async function add(argv: readonly string[]): Promise<void> {
  const { request, values } = await changeOf('redirect-uri add', argv)
  const answer = await changeCore(values, (core) => core.addRedirectUri(request))
  print(answer.redirectUris, values)
}

async function remove(argv: readonly string[]): Promise<void> {
  const { request, values } = await changeOf('redirect-uri remove', argv)
  const answer = await changeCore(values, (core) => core.removeRedirectUri(request))
  print(answer.redirectUris, values)
}

async function changeOf(command: string, argv: readonly string[]) {
  const { values, positionals } = parse(argv, options)
  const [uri, ...rest] = positionals
  if (uri === undefined || rest.length > 0) throw new UsageError(`${command} needs one URI`)
  const { app: clientId } = await need(command, values, ['app'])
  return { values, request: { clientId, uri, use: values.logout ? 'logout' : 'login' } }
}

function print(uris: RedirectUris | undefined, values: { json?: boolean | undefined }): void {
  const { login, logout } = uris ?? { login: [], logout: [] }
  const rows = [...login.map((uri) => ['login', uri]), ...logout.map((uri) => ['logout', uri])]
  report(values, { login, logout }, () => table(['for', 'URI'], rows, 'no redirect URIs'))
}
