import { domainToASCII } from 'node:url'

/**
 * The one form in which an e-mail address is stored and compared (docs/decisions/41.md): an ASCII local part and a domain
 * of IDNA A-labels (RFC 5890 section 2.3.2.1), both lower-cased by ASCII rules. Two addresses are the same when their
 * normal forms are equal as text; no other folding is used anywhere.
 */
declare const normal: unique symbol
export type Email = string & { readonly [normal]: true }

const addressMax = 254 // RFC 5321 section 4.5.3.1.3, without the angle brackets
const localSyntax = /^[a-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}$/
// What IDNA maps to a dot counts as one. Everything else that URL syntax could read as no part of a host is left out.
const domainSyntax = /^[\p{L}\p{M}\p{N}.\u3002\uff0e\uff61-]{1,255}$/u
const asciiDomain =
  /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/

/** The normal form of an address; null for any text that has none. Blanks around the address do not count. */
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

/** The normal form of the domain of an address; null for any text that has none. */
export function normalizeDomain(text: string): string | null {
  if (!domainSyntax.test(text)) return null
  const domain = lowerAscii(domainToASCII(text))
  // A name that ends in a number is an IPv4 address to URL syntax, which rewrites it.
  return asciiDomain.test(domain) && !/(?:^|\.)\d+$/.test(domain) ? domain : null
}

/** The domain of an address in its normal form. */
export const domainOf = (email: Email): string => email.slice(email.lastIndexOf('@') + 1)

const lowerAscii = (text: string): string =>
  text.replace(/[A-Z]/g, (letter) => letter.toLowerCase())
