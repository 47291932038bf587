/** http on a loopback address by number or name: host, port, and all that follows. */
const loopback = /^http:\/\/(127\.0\.0\.1|\[::1\]|localhost)(?::\d{1,5})?((?:[/?].*)?)$/

/**
 * Whether `requested` is one of the registered URIs: character by character, except that a loopback URI may have any
 * port (RFC 8252 section 7.3). No prefix, no pattern.
 */
export function isRegistered(requested: string, registered: readonly string[]): boolean {
  if (registered.includes(requested)) return true
  const wanted = loopback.exec(requested)
  if (!wanted || !URL.canParse(requested)) return false
  return registered.some((uri) => {
    const known = loopback.exec(uri)
    return known !== null && known[1] === wanted[1] && known[2] === wanted[2]
  })
}
