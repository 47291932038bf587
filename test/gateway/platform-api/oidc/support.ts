import { credentials } from '@grpc/grpc-js'
import { unary } from '../../../../core/lib/grpc.ts'
import { serviceTokenHeader } from '../../../../proto/headers.ts'
import { DeviceServiceClient } from '../../../../proto/gen/ts-proto/tollgate/tokens/v1/devices.ts'
import { serviceToken } from '../../../core/support.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

export const accessToken = 'urn:ietf:params:oauth:token-type:access_token'
export const exchangeGrant = 'urn:ietf:params:oauth:grant-type:token-exchange'
export const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code'
export const issuer = 'https://svc.example/api/v1/oidc'

export type Fields = Readonly<Record<string, string | readonly string[] | undefined>>

export interface Answered {
  readonly status: number
  readonly error: unknown
  readonly body: Record<string, unknown>
  readonly headers: Headers
}

/** Starts a gateway with a real core and an app, and calls its routes with forms. */
export async function startGrants(env: Readonly<Record<string, string>> = {}) {
  const real = await startReal(env)
  const app = await real.newApp('grants')

  async function send(method: string, path: string, options: RequestInit = {}): Promise<Answered> {
    const response = await fetch(real.url + path, { method, ...options })
    const body = asRecord(JSON.parse((await response.text()) || '{}'))
    return { status: response.status, error: body['error'], body, headers: response.headers }
  }

  const post = (path: string, fields: Fields, authorization?: string): Promise<Answered> =>
    send('POST', path, {
      body: formOf(fields),
      headers: authorization === undefined ? {} : { authorization },
    })

  const token = (fields: Fields, authorization?: string) =>
    post('/api/v1/oidc/token', fields, authorization)
  const appToken = (fields: Fields, options: { authorization?: string; clientId?: string } = {}) =>
    post(
      `/api/v1/apps/${options.clientId ?? app.clientId}/oidc/token`,
      fields,
      options.authorization,
    )

  /** Returns a user token without its scheme. */
  const userToken = async (externalUserId = 'ada', of: RealApp = app): Promise<string> =>
    (await real.core.as(of.basic).mintUserToken({ clientId: of.clientId, externalUserId }))
      .accessToken

  return {
    real,
    app,
    send,
    post,
    token,
    appToken,
    userToken,
    devices: deviceCalls(real),
    stop: real.stop,
  }
}

export type Grants = Awaited<ReturnType<typeof startGrants>>

function formOf(fields: Fields): URLSearchParams {
  const form = new URLSearchParams()
  for (const [name, value] of Object.entries(fields)) {
    for (const each of value === undefined ? [] : [value].flat()) form.append(name, each)
  }
  return form
}

export const sessionOf = (app: RealApp): string =>
  (app.session['cookie'] ?? '').split('=').slice(1).join('=')

function deviceCalls(real: Real) {
  const client = new DeviceServiceClient(real.core.core.target, credentials.createInsecure())
  const operator = { deadlineMs: 10_000, headers: { [serviceTokenHeader]: serviceToken } }
  return {
    get: (sessionToken: string, userCode: string) =>
      unary(client.getDevice.bind(client))({ sessionToken, userCode }, operator),
    decide: (sessionToken: string, userCode: string, action: string) =>
      unary(client.decideDevice.bind(client))({ sessionToken, userCode, action }, operator),
  }
}

/** Returns the claims of a JWT, unverified. */
export const claimsOf = (token: unknown): Record<string, unknown> =>
  asRecord(JSON.parse(Buffer.from(String(token).split('.')[1] ?? '', 'base64url').toString()))

export const headerOf = (token: unknown): Record<string, unknown> =>
  asRecord(JSON.parse(Buffer.from(String(token).split('.')[0] ?? '', 'base64url').toString()))
