/** One header as (name, value); a list keeps order and repetition. */
export type HeaderLine = readonly [name: string, value: string]

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

/**
 * Go's CanonicalMIMEHeaderKey: `x-request-ID` becomes `X-Request-Id`, `X_Under` becomes `X_under`.
 */
export function canonicalName(name: string): string {
  if (!TOKEN.test(name)) return name
  return name.toLowerCase().replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase())
}

// Alternatives from RFC 3629 (UTF-8), over a string with one byte per character. A byte outside
// becomes one U+FFFD, as in Go.
const UTF8_OR_BYTE = new RegExp(
  [
    '[\\x00-\\x7f]+',
    '[\\xc2-\\xdf][\\x80-\\xbf]',
    '\\xe0[\\xa0-\\xbf][\\x80-\\xbf]',
    '[\\xe1-\\xec\\xee\\xef][\\x80-\\xbf]{2}',
    '\\xed[\\x80-\\x9f][\\x80-\\xbf]',
    '\\xf0[\\x90-\\xbf][\\x80-\\xbf]{2}',
    '[\\xf1-\\xf3][\\x80-\\xbf]{3}',
    '\\xf4[\\x80-\\x8f][\\x80-\\xbf]{2}',
    '[\\x80-\\xff]',
  ].join('|'),
  'g',
)

// node:http returns one character per byte.
function decodeBytes(value: string): string {
  return value.replace(UTF8_OR_BYTE, (match) =>
    match.length === 1 && match > '\x7f' ? '\ufffd' : Buffer.from(match, 'latin1').toString(),
  )
}

// Go removes these from the header map while it reads a request.
const NOT_IN_THE_MAP = new Set(['Host', 'Transfer-Encoding', 'Trailer'])

/**
 * Returns the header map of a Go server for this request, keys canonical and sorted, values always
 * arrays, unfiltered (docs/signer-webhook.md, "Request").
 */
export function toHeaderMap(rawHeaders: readonly string[]): Record<string, string[]> {
  const map = new Map<string, string[]>()
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = canonicalName(rawHeaders[i] ?? '')
    if (NOT_IN_THE_MAP.has(name)) continue
    map.set(name, [...(map.get(name) ?? []), decodeBytes(rawHeaders[i + 1] ?? '')])
  }
  return Object.fromEntries([...map].sort(([a], [b]) => (a < b ? -1 : 1)))
}

/**
 * Reads `-remoteSignerWebhookHeaders`: split at every comma, then at the first colon, both sides
 * trimmed; an entry without colon or name is ignored, the last of equal names wins.
 */
export function parseHeaderFlag(flag: string): HeaderLine[] {
  const headers = new Map<string, string>()
  for (const entry of flag.split(',')) {
    const colon = entry.indexOf(':')
    const name = entry.slice(0, Math.max(colon, 0)).trim()
    if (name !== '') headers.set(name, entry.slice(colon + 1).trim())
  }
  return [...headers]
}

/** Headers that Go's client writes itself, regardless of the header map. */
const WRITTEN_APART = new Set([
  'Host',
  'Content-Length',
  'Transfer-Encoding',
  'Trailer',
  'User-Agent',
])

export type OutgoingHead = Readonly<{
  host: string
  headers: ReadonlyMap<string, string>
  contentLength: number | undefined
}>

/** Writes the head in the order of Go's http.Client, ready for node:http as a raw array. */
export function toGoWire({ host, headers, contentLength }: OutgoingHead): string[] {
  const sorted = [...headers]
    .filter(([name]) => !WRITTEN_APART.has(name))
    .sort(([a], [b]) => (a < b ? -1 : 1))
  const lines: HeaderLine[] = [
    ['Host', host],
    ['User-Agent', headers.get('User-Agent') ?? 'Go-http-client/1.1'],
    ...(contentLength === undefined ? [] : [['Content-Length', `${contentLength}`] as const]),
    ...sorted,
    ...(headers.has('Accept-Encoding') ? [] : [['Accept-Encoding', 'gzip'] as const]),
  ]
  return lines.flatMap(([name, value]) => [name, Buffer.from(value).toString('latin1')])
}
