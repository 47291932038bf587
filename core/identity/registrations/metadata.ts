import { DomainError } from '../../../proto/errors.ts'
import { GrantType } from '../../../proto/oauth.ts'
import { Scope } from '../../../proto/scopes.ts'
import { type JsonObject, parseObject } from '../../lib/json.ts'
import { parseName, parseRedirectUris, parseWebUrl } from '../input.ts'

/** Metadata of a client registration (RFC 7591 section 2), as stored. Other members are ignored. */
export interface ClientMetadata {
  readonly redirectUris: readonly string[]
  readonly grantTypes: readonly string[]
  readonly scopes: readonly string[]
  readonly name: string
  readonly clientUri: string | null
  readonly softwareId: string | null
  readonly softwareVersion: string | null
}

const textMax = 16_384
const scopeMax = 1_000
const grantTypes: readonly string[] = [GrantType.authorizationCode, GrantType.refreshToken]
const usualName = 'An application without a name'

const invalid = (message: string): DomainError =>
  new DomainError('CLIENT_METADATA_INVALID', message)

/**
 * Parses the body of a registration. Throws CLIENT_METADATA_INVALID for anything but a JSON object.
 */
export function parseMetadataText(text: string): JsonObject {
  const members = text.length <= textMax ? parseObject(text) : null
  if (!members) throw invalid(`send one JSON object of at most ${textMax} characters`)
  return members
}

/**
 * Parses a public client's metadata. Allows only the app's scopes; an unchanged name is not checked
 * again. Throws with the error codes of RFC 7591 section 3.2.2.
 */
export function parseMetadata(
  members: JsonObject,
  appScopes: readonly string[],
  currentName?: string,
): ClientMetadata {
  refuseStatement(members['software_statement'])
  const redirectUris = parseUris(members['redirect_uris'])
  requireMember(members, 'token_endpoint_auth_method', ['none'])
  for (const type of textsOf(members, 'response_types') ?? [])
    if (type !== 'code') throw invalid('response_types may hold only: code')
  return {
    redirectUris,
    grantTypes: parseGrants(textsOf(members, 'grant_types')),
    scopes: parseScope(optionalText(members, 'scope', scopeMax), appScopes),
    name: asMetadata(() =>
      parseName(optionalText(members, 'client_name') ?? usualName, {
        field: 'client_name',
        current: currentName,
      }),
    ),
    clientUri: parseUri(optionalText(members, 'client_uri', 2_000)),
    softwareId: optionalText(members, 'software_id'),
    softwareVersion: optionalText(members, 'software_version'),
  }
}

/**
 * No issuer of software statements is approved, so every statement is rejected: as invalid, or as
 * unapproved.
 */
function refuseStatement(statement: unknown): void {
  if (statement === undefined || statement === null) return
  const isJwt = typeof statement === 'string' && /^[\w-]+\.[\w-]+\.[\w-]*$/.test(statement)
  throw isJwt
    ? new DomainError(
        'SOFTWARE_STATEMENT_UNAPPROVED',
        'no issuer of software statements is approved here; register without one',
      )
    : new DomainError('SOFTWARE_STATEMENT_INVALID', 'software_statement must be a JWT')
}

function parseUris(value: unknown): string[] {
  const isList = Array.isArray(value) && value.every((uri) => typeof uri === 'string')
  if (!isList || value.length === 0)
    throw new DomainError('REDIRECT_URI_INVALID', 'redirect_uris must hold at least one URI')
  return refuseAs('REDIRECT_URI_INVALID', () => parseRedirectUris(value, 'redirect_uris'))
}

function parseGrants(names: readonly string[] | null): string[] {
  const chosen = [...new Set(names ?? [GrantType.authorizationCode])]
  if (chosen.some((name) => !grantTypes.includes(name)))
    throw invalid(`grant_types may hold only: ${grantTypes.join(', ')}`)
  if (!chosen.includes(GrantType.authorizationCode))
    throw invalid(`grant_types must hold ${GrantType.authorizationCode}`)
  return chosen
}

/**
 * Returns the requested scopes that the app has. Ignores unknown scopes; the response lists the
 * granted ones. Without a request, grants every scope that cannot spend money, or all scopes if the
 * app has no others.
 */
function parseScope(scope: string | null, appScopes: readonly string[]): string[] {
  if (scope === null) {
    const usual = appScopes.filter((name) => name !== Scope.signJob)
    return usual.length > 0 ? usual : [...appScopes]
  }
  const scopes = [...new Set(scope.split(' '))].filter((name) => appScopes.includes(name))
  if (scopes.length === 0) throw invalid(`scope may contain only: ${appScopes.join(' ')}`)
  return scopes
}

const parseUri = (text: string | null): string | null =>
  text === null ? null : asMetadata(() => parseWebUrl(text, 'client_uri')) || null

function requireMember(members: JsonObject, name: string, known: readonly string[]): void {
  const value = members[name] ?? known[0]
  if (typeof value !== 'string' || !known.includes(value))
    throw invalid(`${name} must be: ${known.join(', ')}`)
}

/** Returns null if the member is absent. */
function optionalText(members: JsonObject, name: string, max = 200): string | null {
  const value = members[name] ?? null
  if (value === null) return null
  if (typeof value === 'string' && value.trim() !== '' && value.length <= max) return value.trim()
  throw invalid(`${name} must be text of at most ${max} characters`)
}

function textsOf(members: JsonObject, name: string): string[] | null {
  const value = members[name] ?? null
  if (value === null) return null
  if (Array.isArray(value) && value.length > 0 && value.every((item) => typeof item === 'string'))
    return value
  throw invalid(`${name} must be a non-empty list of strings`)
}

const asMetadata = <T>(parse: () => T): T => refuseAs('CLIENT_METADATA_INVALID', parse)

/** Replaces the dashboard parsers' REQUEST_INVALID with an error code of RFC 7591. */
function refuseAs<T>(
  reason: 'CLIENT_METADATA_INVALID' | 'REDIRECT_URI_INVALID',
  parse: () => T,
): T {
  try {
    return parse()
  } catch (error) {
    if (!(error instanceof DomainError)) throw error
    throw new DomainError(reason, error.message)
  }
}
