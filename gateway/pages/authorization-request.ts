import type { FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import { consentText } from '../../proto/scopes.ts'
import { type Html, type Theme, html } from '../http/page.ts'

/**
 * Parameters of an authorization request that core checks; also the hidden fields of the consent
 * form.
 */
const names = {
  client_id: 'clientId',
  redirect_uri: 'redirectUri',
  response_type: 'responseType',
  scope: 'scope',
  code_challenge: 'codeChallenge',
  code_challenge_method: 'codeChallengeMethod',
  nonce: 'nonce',
  prompt: 'prompt',
  resource: 'resource',
  id_token_hint: 'idTokenHint',
} as const

export interface AuthorizationRequest {
  readonly clientId: string
  readonly redirectUri: string
  readonly responseType: string
  readonly scope?: string
  readonly codeChallenge?: string
  readonly codeChallengeMethod?: string
  readonly nonce?: string
  readonly prompt?: string
  readonly resource?: string
  readonly idTokenHint?: string
}

export type Parameters = Readonly<Record<string, unknown>>

/** Returns the request in core's form. Blank parameters count as absent (RFC 6749 section 3.1). */
export function parseAuthorization(parameters: Parameters): AuthorizationRequest {
  const fields = Object.entries(names).flatMap(([name, field]) => {
    const value = Object.hasOwn(parameters, name) ? parameters[name] : undefined
    return typeof value === 'string' && value !== '' ? [[field, value]] : []
  })
  return { clientId: '', redirectUri: '', responseType: '', ...Object.fromEntries(fields) }
}

/** Returns a parameter that is a single, non-blank string; otherwise undefined. */
export function readText(parameters: Parameters, name: string): string | undefined {
  const value = Object.hasOwn(parameters, name) ? parameters[name] : undefined
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** Returns the parameters that the consent form sends back to us. */
export const formFields = (parameters: Parameters): Record<string, string | undefined> =>
  Object.fromEntries(
    [...Object.keys(names), 'state', 'login_hint'].map((name) => [
      name,
      readText(parameters, name),
    ]),
  )

const hintMax = 320

/** The app's theme, and the URL at which the browser will end after the login. */
export interface LoginDestination {
  readonly theme?: Theme | undefined
  readonly leadsTo?: string | undefined
  /**
   * The address that the application expects (`login_hint`, OpenID Connect Core section 3.1.2.1).
   */
  readonly loginHint?: string | undefined
}

/**
 * Returns the destination of a login that continues an authorization request, if core finds its
 * redirect URI registered.
 */
export async function findDestination(
  request: FastifyRequest,
  returnTo: string | undefined,
): Promise<LoginDestination> {
  const [path = '', query = ''] = (returnTo ?? '').split('?')
  if (path !== '/api/v1/oidc/auth' && path !== '/api/v1/oidc/authorize') return {}
  try {
    const parameters = Object.fromEntries(new URLSearchParams(query))
    const authorization = parseAuthorization(parameters)
    const { appName, appColor } = await request.core.authorization.checkAuthorization(authorization)
    const theme = { name: appName, color: appColor }
    const loginHint = readText(parameters, 'login_hint')?.slice(0, hintMax)
    return { theme, leadsTo: authorization.redirectUri, loginHint }
  } catch (error) {
    // The authorization page reports errors in the request.
    if (
      error instanceof DomainError &&
      (error.reason === 'NOT_FOUND' || error.reason === 'REQUEST_INVALID')
    )
      return {}
    throw error
  }
}

/** Lists the requested scopes: what each permits, and its name. */
export const scopeList = (scopes: readonly string[]): Html =>
  html`<ul>${scopes.map(
    (scope) => html`<li>${consentText(scope)}<small>${scope}</small></li>`,
  )}</ul>`
