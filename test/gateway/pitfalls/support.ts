import { startGrants } from '../platform-api/oidc/support.ts'
import { asRecord } from '../support.ts'

export interface Answered {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly body: Readonly<Record<string, unknown>>
}

export interface Ask {
  readonly headers?: Readonly<Record<string, string>>
  readonly json?: unknown
  readonly text?: string
  readonly form?: Readonly<Record<string, string>>
}

/**
 * Starts a gateway with a real core and an app of platform-api/oidc/support.ts, with short request functions.
 */
export async function startPitfalls() {
  const grants = await startGrants()
  const { app, real } = grants
  const path = `/api/v1/apps/${app.clientId}`
  const m2m = { authorization: app.basic }

  async function ask(
    method: string,
    at: string,
    { headers = m2m, json, text, form }: Ask = {},
  ): Promise<Answered> {
    const body =
      text ??
      (form
        ? new URLSearchParams(form).toString()
        : json === undefined
          ? undefined
          : JSON.stringify(json))
    const type = form ? 'application/x-www-form-urlencoded' : 'application/json'
    const response = await fetch(real.url + at, {
      method,
      redirect: 'manual',
      headers: { ...(body !== undefined && { 'content-type': type }), ...headers },
      ...(body !== undefined && { body }),
    })
    const answer = await response.text()
    const isObject =
      /[/+]json/.test(response.headers.get('content-type') ?? '') && answer.startsWith('{')
    return {
      status: response.status,
      headers: response.headers,
      text: answer,
      body: isObject ? asRecord(JSON.parse(answer)) : {},
    }
  }

  let users = 0
  /** Creates a user of the app that no other test uses. */
  async function newUser(): Promise<{
    name: string
    at: string
    key: string
    keyId: string
    token: string
  }> {
    const name = `pitfall-${++users}`
    const at = `${path}/users/${name}`
    await ask('POST', `${path}/users`, {
      json: { externalUserId: name, email: `${name}@example.com` },
    })
    const key = (await ask('POST', `${at}/keys`)).body
    const token = String((await ask('POST', `${at}/token`)).body['access_token'])
    return { name, at, key: String(key['apiKey']), keyId: String(key['keyId']), token }
  }

  const [id = '', secret = ''] = Buffer.from(app.basic.slice(6), 'base64').toString().split(':')
  return { ...grants, path, m2m, ask, newUser, id, secret }
}

export type Pitfalls = Awaited<ReturnType<typeof startPitfalls>>
