import { isIP } from 'node:net'
import { DomainError } from '../../proto/errors.ts'
import { publicGrantTypes } from '../../proto/oauth.ts'
import { publicVocabulary } from '../../proto/scopes.ts'
import { type Email, normalizeDomain, normalizeEmail } from '../lib/text/email.ts'
import { nameProblem } from '../lib/text/names.ts'
import { isReadable } from '../lib/text/readable.ts'
import { parseReadable } from '../shared/text.ts'
import { type Role, roles } from '../rpc/callers.ts'
import { type LoginPolicy, loginPolicies } from './types.ts'

/** Parsers of text typed by people. All throw REQUEST_INVALID with the reason. */

const uriMax = 2_000
const urisMax = 20
const loopbackHosts = new Set(['localhost', '127.0.0.1', '[::1]'])

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)

/**
 * Parses the name of an app or a client: 1 to 100 readable characters after trimming. Any name but
 * `current` must also follow the rules for names.
 */
export function parseName(text: string, { field = 'name', current = '' } = {}): string {
  const name = parseReadable(text, { field })
  const problem = name === current ? null : nameProblem(name)
  if (problem !== null) throw invalid(`${field} ${problem}`)
  return name
}

/** 1 to 100 readable characters after trimming; empty text clears the name. */
export const parseOptionalName = (text: string, field: string): string =>
  text.trim() === '' ? '' : parseReadable(text, { field })

/** Returns the address in normal form. */
export function parseEmail(text: string, field = 'email'): Email {
  const email = normalizeEmail(text)
  if (email !== null) return email
  throw invalid(
    `${field} must be an e-mail address; before the @ it has ASCII letters, digits and .!#$%&'*+/=?^_\`{|}~- only`,
  )
}

export function parseColor(text: string): string {
  const color = text.trim().toLowerCase()
  if (!/^#[0-9a-f]{6}$/.test(color)) throw invalid('color must be #rrggbb')
  return color
}

/** Parses an http or https URL without credentials. Empty text clears it. */
export function parseWebUrl(text: string, field: string): string {
  if (text.trim() === '') return ''
  const url = parseUrl(text.trim(), field)
  if (url.protocol !== 'https:' && url.protocol !== 'http:')
    throw invalid(`${field} must be an http or https URL`)
  return url.href.replace(/\/$/, '')
}

export function parseMeteringMode(text: string): 'stream' | 'direct' {
  if (text !== 'stream' && text !== 'direct')
    throw invalid('meteringMode must be one of: stream, direct')
  return text
}

export function parseLoginPolicy(text: string): LoginPolicy {
  const policy = loginPolicies.find((known) => known === text)
  if (!policy) throw invalid(`loginPolicy must be one of: ${loginPolicies.join(', ')}`)
  return policy
}

/** Parses e-mail domains into normal form. A domain does not include its subdomains. */
export function parseLoginDomains(values: readonly string[]): string[] {
  const domains = values.map((value) => normalizeDomain(value.trim()))
  if (values.length > 50 || domains.includes(null))
    throw invalid('loginDomains must hold at most 50 domains such as example.com')
  return [...new Set(domains.filter((domain) => domain !== null))]
}

export function parseRole(text: string): Role {
  const role = roles.find((known) => known === text)
  if (!role) throw invalid(`role must be one of: ${roles.join(', ')}`)
  return role
}

/**
 * Checks redirect URIs and returns them unchanged, because they are compared as text (RFC 9700
 * section 2.1). Allows https, http on the loopback (RFC 8252 section 7.3), or a private-use scheme
 * with a dot (RFC 8252 section 7.1).
 */
export function parseRedirectUris(values: readonly string[], field: string): string[] {
  if (values.length > urisMax) throw invalid(`${field} may have at most ${urisMax} entries`)
  for (const value of values) checkRedirectUri(value, field)
  return [...new Set(values)]
}

const uriForm = /^(?!https?:(?!\/\/))(?:[\w\-.~:/?#[\]@!$&'()*+,;=]|%[\da-f]{2})+$/i

function checkRedirectUri(value: string, field: string): void {
  const url = parseUrl(value, field)
  // The URI goes unchanged into a Location header, so it must contain only characters that browsers
  // do not rewrite (RFC 3986 section 2).
  if (!uriForm.test(value))
    throw invalid(
      `${field} must be URIs such as https://app.example/done: no spaces, backslashes or letters beyond ASCII; write a host as xn--…`,
    )
  if (value.includes('#')) throw invalid(`${field}: a redirect URI has no fragment`)
  if (value.includes('*')) throw invalid(`${field}: a redirect URI has no wildcard`)
  const scheme = url.protocol.slice(0, -1)
  if (scheme === 'https') return
  const isPrivateUse = scheme.includes('.') && scheme !== '.'
  if (!isPrivateUse && !(scheme === 'http' && loopbackHosts.has(url.hostname))) {
    throw invalid(
      `${field} must be https, http on localhost, or a private-use scheme such as com.example.app:/done`,
    )
  }
}

/**
 * Parses the URL at which a third party starts a login: https, or http on localhost. Empty text
 * clears it.
 */
export function parseInitiateLoginUri(text: string): string | null {
  if (text.trim() === '') return null
  const url = parseUrl(text.trim(), 'initiateLoginUri')
  if (!isSecure(url) || text.includes('#'))
    throw invalid('initiateLoginUri must be https, or http on localhost, without a fragment')
  return text.trim()
}

export const parseScopes = (values: readonly string[]): string[] =>
  parseWords(values, { field: 'allowedScopes', known: publicVocabulary })

export const parseGrantTypes = (values: readonly string[]): string[] =>
  parseWords(values, { field: 'grantTypes', known: publicGrantTypes })

function parseWords(
  values: readonly string[],
  { field, known }: { field: string; known: readonly string[] },
): string[] {
  if (values.some((value) => !known.includes(value)))
    throw invalid(`${field} may hold only: ${known.join(', ')}`)
  return [...new Set(values)]
}

/**
 * Parses an origin as browsers send it (RFC 6454 section 6.1): https, or http on localhost. A bare
 * host means https.
 */
export function parseOrigin(text: string): string {
  const trimmed = text.trim()
  const hasScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(trimmed)
  const url = parseUrl(hasScheme ? trimmed : `https://${trimmed}`, 'domain')
  if (!isBareOrigin(url) || trimmed.includes('*') || trimmed.includes('#')) {
    throw invalid(
      'domain must be an origin such as https://app.example.com, without a path or wildcard',
    )
  }
  if (!isSecure(url)) throw invalid('domain must be https, or http on localhost')
  if (!isWholeHost(url.hostname)) throw invalid('domain must name a whole host')
  return url.origin
}

const isBareOrigin = (url: URL): boolean =>
  url.pathname === '/' && url.search === '' && url.hash === ''

const isSecure = (url: URL): boolean =>
  url.protocol === 'https:' || (url.protocol === 'http:' && loopbackHosts.has(url.hostname))

const isWholeHost = (host: string): boolean =>
  host.includes('.') || loopbackHosts.has(host) || isIP(host.replace(/[[\]]/g, '')) > 0

function parseUrl(text: string, field: string): URL {
  if (text.length > uriMax || !isReadable(text) || /\s/.test(text) || !URL.canParse(text)) {
    throw invalid(`${field} must be absolute and at most ${uriMax} characters`)
  }
  const url = new URL(text)
  if (url.username !== '' || url.password !== '')
    throw invalid(`${field} must not hold credentials`)
  return url
}
