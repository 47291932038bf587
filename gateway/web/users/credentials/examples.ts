/** Programs that use a key: each exchanges it for a signer token (RFC 8693). */

export const languages = ['curl', 'TypeScript', 'Python'] as const
export type Language = (typeof languages)[number]

interface ExampleKey {
  /** Where the gateway is, for example `https://tollgate.example`. */
  readonly origin: string
  readonly clientId: string
  readonly apiKey: string
}

const urn = 'urn:ietf:params:oauth'

/** Returns a program that runs as it is. */
export function writeExample(language: Language, { origin, clientId, apiKey }: ExampleKey): string {
  const url = `${origin}/api/v1/apps/${clientId}/oidc/token`
  return writers[language](url, apiKey)
}

const writers: Readonly<Record<Language, (url: string, apiKey: string) => string>> = {
  curl: (url, apiKey) => `KEY='${apiKey}'
curl --fail-with-body -sS '${url}' \\
  --data-urlencode grant_type=${urn}:grant-type:token-exchange \\
  --data-urlencode subject_token_type=${urn}:token-type:access_token \\
  --data-urlencode "subject_token=$KEY"
`,
  TypeScript: (url, apiKey) => `const key = '${apiKey}'
const answer = await fetch('${url}', {
  method: 'POST',
  body: new URLSearchParams({
    grant_type: '${urn}:grant-type:token-exchange',
    subject_token_type: '${urn}:token-type:access_token',
    subject_token: key,
  }),
})
if (!answer.ok) throw new Error(await answer.text())
console.log(await answer.json())
`,
  Python: (url, apiKey) => `import json, urllib.parse, urllib.request

key = '${apiKey}'
form = urllib.parse.urlencode({
    'grant_type': '${urn}:grant-type:token-exchange',
    'subject_token_type': '${urn}:token-type:access_token',
    'subject_token': key,
})
with urllib.request.urlopen('${url}', form.encode()) as answer:
    print(json.load(answer))
`,
}
