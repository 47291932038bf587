/**
 * Returns where the pay page leads back to: the requested address if browsers reach it by https or
 * on this machine, else `fallback` (docs/payments.md).
 */
export function returnUrl(requested: string | undefined, fallback: string): string {
  if (requested === undefined || requested.length > maxLength || !URL.canParse(requested))
    return fallback
  const { protocol, hostname, username, password, href } = new URL(requested)
  if (username !== '' || password !== '') return fallback
  if (protocol === 'https:') return href
  return protocol === 'http:' && isThisMachine(hostname) ? href : fallback
}

const maxLength = 2_000

const isThisMachine = (host: string): boolean =>
  host === 'localhost' || host === '127.0.0.1' || host === '[::1]' || host.endsWith('.localhost')

/** Whether a stored return address is the requested one, or replaces a missing one. */
export const returnsTo = (stored: string, requested: string | undefined): boolean =>
  stored === returnUrl(requested, stored)
