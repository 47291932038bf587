import { Client } from 'pg'
import { type Reloadable, currentValue } from './reloadable.ts'

/** The address without its password, which is the part that a reload replaces. */
export function withoutPassword(url: string): string {
  if (!URL.canParse(url)) return url
  const address = new URL(url)
  address.password = ''
  return address.href
}

const passwordIn = (url: string): string =>
  URL.canParse(url) ? decodeURIComponent(new URL(url).password) : ''

/**
 * Returns a client that finds its password when it connects. After a reload that is the new one as
 * soon as the server accepts it, and the earlier one until then: so first the setting changes, and
 * then the role, without a failed connection.
 */
export function withLivePassword(Base: typeof Client, url: Reloadable<string>): typeof Client {
  // pg finds the password of an address without one: in PGPASSWORD or ~/.pgpass.
  if (typeof url === 'string' || passwordIn(url()) === '') return Base
  const findPassword = createPasswordFinder(url)
  return class extends Base {
    constructor(...options: ConstructorParameters<typeof Client>) {
      super(...options)
      // pg takes no function together with an address.
      Object.defineProperty(this, 'password', { value: findPassword, writable: true })
    }
  }
}

function createPasswordFinder(url: Reloadable<string>): () => Promise<string> {
  let accepted = passwordIn(currentValue(url))
  let probing: Promise<boolean> | null = null

  return async () => {
    const latest = currentValue(url)
    if (passwordIn(latest) === accepted) return accepted
    probing ??= isAccepted(latest).finally(() => {
      probing = null
    })
    if (await probing) accepted = passwordIn(latest)
    return accepted
  }
}

/** Whether the server accepts the password. */
async function isAccepted(url: string): Promise<boolean> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 2_000 })
  client.on('error', () => {})
  try {
    await client.connect()
    return true
  } catch {
    return false
  } finally {
    await client.end().catch(() => {})
  }
}
