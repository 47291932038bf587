import { domainToASCII } from 'node:url'

/**
 * The normal form in which e-mail addresses are stored and compared (docs/decisions/41.md): an
 * ASCII local part and a domain of IDNA A-labels (RFC 5890 section 2.3.2.1), both in lower case by
 * ASCII rules. Two addresses are the same if their normal forms are equal as text. No other folding
 * is used anywhere.
 */
declare const normal: unique symbol
export type Email = string & { readonly [normal]: true }

const addressMax = 254 // RFC 5321 section 4.5.3.1.3, without the angle brackets
const localSyntax = /^[a-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}$/
// Characters that IDNA maps to a dot are allowed. Other characters that URL syntax could parse as
// something else than a host are not.
const domainSyntax = /^[\p{L}\p{M}\p{N}.\u3002\uff0e\uff61-]{1,255}$/u
const asciiDomain =
  /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/

/** The normal form of an address; null if it is invalid. Surrounding blanks are ignored. */
export function normalizeEmail(text: string): Email | null {
  const address = text.trim()
  const at = address.lastIndexOf('@')
  if (at < 1 || address.length > 320) return null
  const local = lowerAscii(address.slice(0, at))
  const domain = normalizeDomain(address.slice(at + 1))
  if (domain === null || !localSyntax.test(local)) return null
  const email = `${local}@${domain}`
  return email.length <= addressMax ? (email as Email) : null
}

/** The normal form of an address's domain; null if it is invalid. */
export function normalizeDomain(text: string): string | null {
  if (!domainSyntax.test(text)) return null
  const domain = lowerAscii(domainToASCII(text))
  // URL syntax reads a name that ends in a number as an IPv4 address, and rewrites it.
  return asciiDomain.test(domain) && !/(?:^|\.)\d+$/.test(domain) ? domain : null
}

/** The domain of a normalized address. */
export const toDomain = (email: Email): string => email.slice(email.lastIndexOf('@') + 1)

const lowerAscii = (text: string): string =>
  text.replace(/[A-Z]/g, (letter) => letter.toLowerCase())
