/** A client's id and secret, as sent. */
export interface BasicPair {
  readonly id: string
  readonly secret: string
}

/**
 * The pair in the text of a Basic value, split at its first colon (RFC 7617) and form-decoded (RFC 6749 section 2.3.1).
 * Some clients send it raw, so both readings are there, the raw one first, where they differ. Empty when there is none.
 */
export function basicPairs(text: string): BasicPair[] {
  const colon = text.indexOf(':')
  if (colon <= 0 || colon === text.length - 1) return []
  const raw = { id: text.slice(0, colon), secret: text.slice(colon + 1) }
  const decoded = { id: formDecode(raw.id), secret: formDecode(raw.secret) }
  return decoded.id === raw.id && decoded.secret === raw.secret ? [raw] : [raw, decoded]
}

function formDecode(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '))
  } catch {
    return text
  }
}
