import { DomainError } from '../../../proto/errors.ts'
import type { TrustRules as TrustRulesMessage } from '../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import { withoutFinalSlashes } from '../../lib/text/urls.ts'
import { isForeignUser } from '../../lib/foreign-tokens/form.ts'
import { isReadable } from '../../lib/text/readable.ts'
import type { TrustRules, TrustedIssuer } from './store.ts'

const valuesMax = 20
const textMax = 200
const urlMax = 500
const prefixMax = 50
const claimName = /^[\x21-\x7e]{1,100}$/

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)

/**
 * Parses the rules into normal form. Throws REQUEST_INVALID with the reason. `ownIssuer` can never
 * be trusted, because its tokens are accepted already.
 */
export function parseRules(message: TrustRulesMessage | undefined, ownIssuer: string): TrustRules {
  if (!message) throw invalid('issuer is required')
  const issuer = withoutFinalSlashes(parseAddress(message.issuer, 'issuer'))
  if (sameIssuer(issuer, ownIssuer))
    throw invalid('issuer is this service itself, whose tokens are already accepted')
  const audiences = parseTexts(message.audiences, 'audiences')
  const clientValues = parseTexts(message.clientValues, 'clientValues')
  const clientClaim =
    message.clientClaim === '' ? null : parseClaim(message.clientClaim, 'clientClaim')
  if ((clientClaim === null) !== (clientValues.length === 0))
    throw invalid(
      'clientClaim and clientValues must be set together: the claim and its accepted values',
    )
  if (audiences.length === 0 && clientClaim === null)
    throw invalid(
      'set audiences, or a clientClaim with its clientValues; otherwise this app would accept every token of the issuer',
    )
  return {
    issuer,
    audiences,
    clientClaim,
    clientValues,
    userClaim: message.userClaim === '' ? 'sub' : parseClaim(message.userClaim, 'userClaim'),
    userPrefix: parsePrefix(message.userPrefix),
    jwksUri: message.jwksUri === '' ? null : parseAddress(message.jwksUri, 'jwksUri'),
  }
}

const sameIssuer = (one: string, other: string): boolean =>
  one.toLowerCase() === withoutFinalSlashes(other).toLowerCase()

/**
 * Rejects credentials, query and fragment, so that an issuer has only one address. The address is
 * fetched only under decision 50.
 */
function parseAddress(text: string, field: string): string {
  const url = text.length <= urlMax && URL.canParse(text) ? new URL(text) : null
  if (!url || (url.protocol !== 'https:' && url.protocol !== 'http:'))
    throw invalid(`${field} must be an https URL of at most ${urlMax} characters`)
  if (url.username !== '' || url.password !== '' || /[?#\s]/.test(text))
    throw invalid(`${field} must hold no credentials, query, fragment or white space`)
  return text
}

function parseClaim(text: string, field: string): string {
  if (claimName.test(text)) return text
  throw invalid(`${field} must be the name of a claim: 1 to 100 printable ASCII characters`)
}

function parsePrefix(text: string): string {
  if (text === '' || (text.length <= prefixMax && isForeignUser(`${text}x`))) return text
  throw invalid(
    `userPrefix must have at most ${prefixMax} readable characters, no leading white space, and must not begin with owner: or user:`,
  )
}

function parseTexts(values: readonly string[], field: string): string[] {
  const isFit = (text: string): boolean =>
    text !== '' && text.length <= textMax && isReadable(text) && text === text.trim()
  if (values.length > valuesMax || !values.every(isFit))
    throw invalid(`${field} must hold at most ${valuesMax} texts of 1 to ${textMax} characters`)
  return [...new Set(values)]
}

type Trust = TrustRules & Pick<TrustedIssuer, 'appId'>

/**
 * Whether one token could match both trusts, which would make its user ambiguous. Different
 * audiences separate an app's own trusts but never two apps, because a token may name several
 * audiences.
 */
export function overlap(one: Trust, other: Trust): boolean {
  if (one.issuer !== other.issuer || !meetClients(one, other)) return false
  return one.appId !== other.appId || meetAudiences(one, other)
}

const meet = (one: readonly string[], other: readonly string[]): boolean =>
  one.some((value) => other.includes(value))

const meetAudiences = (one: TrustRules, other: TrustRules): boolean =>
  one.audiences.length === 0 || other.audiences.length === 0 || meet(one.audiences, other.audiences)

// One token may carry both claims, so only different values of the same claim separate two trusts.
const meetClients = (one: TrustRules, other: TrustRules): boolean =>
  one.clientClaim === null ||
  one.clientClaim !== other.clientClaim ||
  meet(one.clientValues, other.clientValues)
