/** An address of Redis, or of the Sentinels that know its master. */
export interface RedisAddress {
  /** Without user, password and parameters. */
  readonly display: string
  /** Null for a Redis at `url`. */
  readonly sentinels: SentinelAddress | null
}

export interface SentinelAddress {
  readonly hosts: readonly { readonly host: string; readonly port: number }[]
  /** The name of the master at the Sentinels. */
  readonly name: string
  readonly isTls: boolean
  /** User and password of Redis; undefined without one. */
  readonly username: string | undefined
  readonly password: string | undefined
  readonly sentinelPassword: string | undefined
  readonly db: number
}

const sentinelUrl =
  /^(redis|rediss)\+sentinel:\/\/(?:([^@/?#]*)@)?([^@/?#]+)\/([^/?#]+)(?:\?([^#]*))?$/
const hostAndPort = /^(\[[0-9a-fA-F:.]+\]|[^:[\]]+)(?::(\d{1,5}))?$/
const sentinelPort = 26_379
const parameters = new Set(['db', 'sentinelPassword'])

/**
 * Parses `redis://HOST:PORT`, or `redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME` with the
 * parameters `db` and `sentinelPassword`; with TLS `rediss`. Returns null for other text.
 */
export function parseRedisUrl(text: string): RedisAddress | null {
  const match = sentinelUrl.exec(text)
  if (match) return parseSentinels(match)
  if (!URL.canParse(text)) return null
  const { protocol, host, pathname } = new URL(text)
  if (protocol !== 'redis:' && protocol !== 'rediss:') return null
  return { display: `${protocol}//${host}${pathname}`, sentinels: null }
}

function parseSentinels(match: RegExpExecArray): RedisAddress | null {
  const [, scheme = '', user, list = '', name = '', query = ''] = match
  const hosts = list.split(',').map(parseHost)
  const known = hosts.filter((host) => host !== null)
  const login = parseLogin(user)
  const more = parseParameters(query)
  const decodedName = decode(name)
  if (known.length < hosts.length || login === null || more === null || decodedName === null)
    return null
  return {
    display: `${scheme}+sentinel://${list}/${name}`,
    sentinels: { hosts: known, name: decodedName, isTls: scheme === 'rediss', ...login, ...more },
  }
}

/** Null if a parameter is unknown or wrong. */
function parseParameters(query: string): Pick<SentinelAddress, 'sentinelPassword' | 'db'> | null {
  const search = new URLSearchParams(query)
  const db = Number(search.get('db') ?? 0)
  const isKnown = [...search.keys()].every((key) => parameters.has(key))
  if (!isKnown || !Number.isInteger(db) || db < 0) return null
  return { sentinelPassword: search.get('sentinelPassword') ?? undefined, db }
}

function parseHost(text: string): { host: string; port: number } | null {
  const [, host, digits = String(sentinelPort)] = hostAndPort.exec(text.trim()) ?? []
  const port = Number(digits)
  if (host === undefined || port < 1 || port > 65_535) return null
  return { host: host.replace(/^\[|\]$/g, ''), port }
}

/** Null if the escapes are wrong. */
function parseLogin(
  user: string | undefined,
): Pick<SentinelAddress, 'username' | 'password'> | null {
  if (user === undefined) return { username: undefined, password: undefined }
  const [name, password] = [user.split(':', 1)[0] ?? '', user.split(':').slice(1).join(':')].map(
    decode,
  )
  if (name === null || password === null) return null
  return { username: name || undefined, password: password || undefined }
}

function decode(text: string): string | null {
  try {
    return decodeURIComponent(text)
  } catch {
    return null
  }
}

/** A Redis address for display. */
export const toRedisAddress = (url: string): string =>
  parseRedisUrl(url)?.display ?? 'an address that is not a URL'
