const timeoutMs = 10_000

/** A page as a browser received it. */
export interface Page {
  readonly status: number
  readonly text: string
  /** Path and query of a redirect. */
  readonly location: string | null
  /** The hidden fields of the page's form. */
  readonly fields: Readonly<Record<string, string>>
}

/**
 * A person's browser: keeps cookies, and sends forms. `origin` is the site's public origin, `url`
 * the address at which this machine reaches it.
 */
export function createBrowser({ url, origin }: { readonly url: string; readonly origin: string }) {
  const jar = new Map<string, string>()

  async function send(
    method: string,
    path: string,
    { body, headers }: { body?: string; headers?: Record<string, string> } = {},
  ): Promise<Response> {
    const response = await fetch(url + path, {
      method,
      redirect: 'manual',
      headers: { cookie: [...jar].map((pair) => pair.join('=')).join('; '), origin, ...headers },
      body: body ?? null,
      signal: AbortSignal.timeout(timeoutMs),
    })
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
      if (value === '') jar.delete(name)
      else jar.set(name, value)
    }
    return response
  }

  async function open(path: string): Promise<Page> {
    return readPage(await send('GET', path), `GET ${path}`)
  }

  async function submit(path: string, fields: Readonly<Record<string, string>>): Promise<Page> {
    const body = new URLSearchParams(fields).toString()
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    return readPage(await send('POST', path, { body, headers }), `POST ${path}`)
  }

  async function readPage(response: Response, request: string): Promise<Page> {
    const text = await response.text()
    // 402 is the pay page again, for a declined card.
    if (response.status >= 400 && response.status !== 402)
      throw new Error(`${request} returned ${response.status}`)
    const location = response.headers.get('location')
    const hidden = [...text.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)">/g)]
    return {
      status: response.status,
      text,
      location: location === null ? null : parsePath(location),
      fields: Object.fromEntries(hidden.map(([, name = '', value = '']) => [name, value])),
    }
  }

  /** Calls REST with the session of the person, whose `csrfToken` comes from `GET /session`. */
  async function call<T>(
    method: string,
    path: string,
    { body, csrfToken = '' }: { body?: object; csrfToken?: string } = {},
  ): Promise<T> {
    const response = await send(method, path, {
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      headers: {
        'x-csrf-token': csrfToken,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
    })
    const text = await response.text()
    if (!response.ok)
      throw new Error(`${method} ${path} returned ${response.status}: ${text.slice(0, 300)}`)
    return JSON.parse(text)
  }

  async function logIn(email: string, password: string): Promise<void> {
    const { fields } = await open('/login')
    const { location } = await submit('/login', { ...fields, email, password })
    if (location === null) throw new Error(`${email} could not log in`)
  }

  return { open, submit, call, logIn }
}

export type Browser = ReturnType<typeof createBrowser>

/** Path and query of an address of the site, whose public origin may not resolve here. */
export function parsePath(address: string): string {
  const { pathname, search } = new URL(address, 'http://site.invalid')
  return pathname + search
}
