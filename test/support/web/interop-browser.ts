export interface Form {
  readonly action: string
  readonly fields: Readonly<Record<string, string>>
  readonly buttons: readonly {
    readonly label: string
    readonly name: string
    readonly value: string
  }[]
}

export interface Page {
  readonly url: URL
  readonly status: number
  readonly title: string
  readonly form: Form | null
  /** The URL outside the site to which the browser was redirected; the page is then empty. */
  readonly left: URL | null
}

interface Sent {
  readonly method: string
  readonly body?: URLSearchParams
}

const maxRedirects = 10

/**
 * A browser without scripts: keeps cookies, follows redirects within the site, fills in forms and
 * clicks their buttons.
 */
export function createBrowser(site: string) {
  const jar = new Map<string, string>()
  const { origin } = new URL(site)

  async function load(url: URL, { method, body }: Sent): Promise<Response> {
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ')
    const headers = new Headers(cookie === '' ? {} : { cookie })
    if (method === 'POST') headers.set('origin', origin)
    const response = await fetch(url, {
      method,
      headers,
      redirect: 'manual',
      ...(body ? { body } : {}),
    })
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
      if (value === '') jar.delete(name)
      else jar.set(name, value)
    }
    return response
  }

  async function go(start: URL, sent: Sent): Promise<Page> {
    let [url, next] = [start, sent]
    for (let count = 0; count < maxRedirects; count++) {
      const response = await load(url, next)
      const location = response.headers.get('location')
      if (location === null) return toPage(url, response.status, await response.text())
      await response.body?.cancel()
      url = new URL(location, url)
      next = { method: 'GET' }
      if (url.origin !== origin)
        return { url, status: response.status, title: '', form: null, left: url }
    }
    throw new Error(`more than ${maxRedirects} redirects, the last to ${url.href}`)
  }

  const visit = (url: string | URL): Promise<Page> => go(new URL(url, origin), { method: 'GET' })

  /** Fills in the fields and clicks the button with that label. */
  async function click(
    { form, url, title }: Page,
    label: string,
    filled: Readonly<Record<string, string>> = {},
  ): Promise<Page> {
    const button = form?.buttons.find((each) => each.label === label)
    if (!form || !button) throw new Error(`the page "${title}" has no button "${label}"`)
    const body = new URLSearchParams({
      ...form.fields,
      ...filled,
      ...(button.name === '' ? {} : { [button.name]: button.value }),
    })
    return go(new URL(form.action, url), { method: 'POST', body })
  }

  const cookies = (): string => [...jar].map(([name, value]) => `${name}=${value}`).join('; ')

  return { visit, click, cookies, origin }
}

export type Browser = ReturnType<typeof createBrowser>

function toPage(url: URL, status: number, text: string): Page {
  const [, title = ''] = /<title>([^<]*)<\/title>/.exec(text) ?? []
  return { url, status, title: unescaped(title), form: formOf(text), left: null }
}

function formOf(text: string): Form | null {
  const [, action, inside = ''] =
    /<form method="post" action="([^"]*)">([\s\S]*?)<\/form>/.exec(text) ?? []
  if (action === undefined) return null
  const inputs = [...inside.matchAll(/<input\b([^>]*)>/g)].map(([, attributes = '']) => [
    attribute(attributes, 'name'),
    attribute(attributes, 'value'),
  ])
  const buttons = [...inside.matchAll(/<button\b([^>]*)>([^<]*)<\/button>/g)].map(
    ([, attributes = '', label = '']) => ({
      label: unescaped(label),
      name: attribute(attributes, 'name'),
      value: attribute(attributes, 'value'),
    }),
  )
  return { action: unescaped(action), fields: Object.fromEntries(inputs), buttons }
}

const attribute = (attributes: string, name: string): string =>
  unescaped(new RegExp(`(?:^|\\s)${name}="([^"]*)"`).exec(attributes)?.[1] ?? '')

const unescaped = (text: string): string =>
  text
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&')
