import type { RedirectUris } from '../../../../proto/gen/ts-proto/tollgate/identity/v1/redirects.ts'
import { action, createCommand } from '../../command.ts'
import { type Option, app, argument } from '../../options.ts'
import { table } from '../../output.ts'

const use: Option<string> = {
  flag: 'logout',
  meaning: 'The URI is for logouts (post_logout_redirect_uris) instead of logins.',
  convert: (word) => (word.length > 0 ? 'logout' : 'login'),
}
const change = { uri: argument('URI'), clientId: app, use }

interface Answer {
  readonly redirectUris?: RedirectUris | undefined
}

const urisOf = ({ redirectUris }: Answer) => ({
  login: redirectUris?.login ?? [],
  logout: redirectUris?.logout ?? [],
})

function linesOf(answer: Answer): string[] {
  const { login, logout } = urisOf(answer)
  const rows = [
    ...login.map((uri) => ({ for: 'login', URI: uri })),
    ...logout.map((uri) => ({ for: 'logout', URI: uri })),
  ]
  return table(rows, ['for', 'URI'], 'no redirect URIs')
}

export const redirectUri = createCommand('redirect-uri', {
  summary: 'lists, adds and removes redirect URIs of an app',
  examples: [
    './tollgate redirect-uri add https://shop.example/callback --app app_0123456789abcdef01234567',
    './tollgate redirect-uri add https://shop.example/bye --logout --app app_0123456789abcdef01234567',
    './tollgate redirect-uri list --app app_0123456789abcdef01234567',
  ],
  actions: {
    list: action({
      text: "Lists the redirect URIs of the app's public client, for logins and for logouts.",
      options: { clientId: app },
      read: (core, request) => core.redirectUris.listRedirectUris(request),
      json: urisOf,
      lines: linesOf,
    }),
    add: action({
      text:
        'Allows URI as redirect URI of logins: https, http on localhost, or a private-use scheme such as ' +
        'com.example.app:/done; at most 20. It is compared as text, so write it exactly as the app sends it.',
      options: change,
      change: (core, request) => core.redirectUris.createRedirectUri(request),
      json: urisOf,
      lines: linesOf,
    }),
    remove: action({
      text: 'Removes URI, so that logins can no longer redirect to it.',
      options: change,
      change: (core, request) => core.redirectUris.deleteRedirectUri(request),
      json: urisOf,
      lines: linesOf,
    }),
  },
})
