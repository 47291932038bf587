/** The parameters of an authorization request that core judges; also the hidden fields of the consent form. */
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
} as const

export interface AskedAuthorization {
  readonly clientId: string
  readonly redirectUri: string
  readonly responseType: string
  readonly scope?: string
  readonly codeChallenge?: string
  readonly codeChallengeMethod?: string
  readonly nonce?: string
  readonly prompt?: string
  readonly resource?: string
}

export type Parameters = Readonly<Record<string, unknown>>

/** The request of one value per parameter; blank ones are absent (RFC 6749 section 3.1). */
export function parseAuthorization(parameters: Parameters): AskedAuthorization {
  const given = Object.entries(names).flatMap(([name, field]) => {
    const value = Object.hasOwn(parameters, name) ? parameters[name] : undefined
    return typeof value === 'string' && value !== '' ? [[field, value]] : []
  })
  return { clientId: '', redirectUri: '', responseType: '', ...Object.fromEntries(given) }
}

export function textOf(parameters: Parameters, name: string): string | undefined {
  const value = Object.hasOwn(parameters, name) ? parameters[name] : undefined
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** What the consent form carries along. */
export const carried = (parameters: Parameters): Record<string, string | undefined> =>
  Object.fromEntries(
    [...Object.keys(names), 'state'].map((name) => [name, textOf(parameters, name)]),
  )
