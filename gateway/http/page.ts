import { hash } from 'node:crypto'
import type { FastifyReply } from 'fastify'
import { renderStyle } from './style/style.ts'

/** HTML text. Only `html` creates it, and it escapes every value that is not HTML itself. */
export interface Html {
  readonly html: string
}

type HtmlValue = string | number | Html | readonly Html[] | null | undefined | false

export function html(parts: TemplateStringsArray, ...values: HtmlValue[]): Html {
  let text = parts[0] ?? ''
  for (let i = 1; i < parts.length; i++) text += renderValue(values[i - 1]) + (parts[i] ?? '')
  return { html: text }
}

function renderValue(value: HtmlValue): string {
  if (value === null || value === undefined || value === false) return ''
  if (typeof value === 'string' || typeof value === 'number') return escapeText(String(value))
  return 'html' in value ? value.html : value.map(({ html }) => html).join('')
}

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

const escapeText = (text: string): string =>
  text.replace(/[&<>"']/g, (character) => escapes[character] ?? '')

/** The app that the page shows to its visitor. */
export interface Theme {
  readonly name: string
  readonly color: string
}

export interface Page {
  readonly title: string
  readonly content: Html
  readonly theme?: Theme | undefined
  readonly status?: number
  /**
   * An address of another site at which a form of this page may end, because browsers apply
   * form-action to redirects, too.
   */
  readonly leadsTo?: string | undefined
  /** Whether the page is a list to read, not a form. */
  readonly isWide?: boolean
  /**
   * For a page without forms. With no-referrer, browsers would send `Origin: null` with our own
   * forms (Fetch standard, "append a request Origin").
   */
  readonly referrerPolicy?: 'no-referrer' | 'same-origin'
}

export function sendPage(reply: FastifyReply, page: Page): FastifyReply {
  const { status, headers, document } = renderPage(page, chosenTheme(reply.request.headers.cookie))
  return reply.code(status).headers(headers).type('text/html; charset=utf-8').send(document)
}

/** The theme that the person chose in the dashboard (web/ui/theme.ts); undefined for the device's. */
const chosenTheme = (cookies = ''): string | undefined =>
  /(?:^|; )tollgate_theme=(light|dark)(?:;|$)/.exec(cookies)?.[1]

/**
 * Returns a page and its headers. Its policy allows no scripts, frames, other hosts, or forms to
 * other sites, and no image but the icon.
 */
export function renderPage(page: Page, colors?: string) {
  const { title, theme, status = 200, leadsTo, referrerPolicy = 'same-origin' } = page
  const style = renderStyle(theme?.color)
  const sources = ["'self'", ...(leadsTo === undefined ? [] : listSources(leadsTo))]
  const policy = [
    "default-src 'none'",
    `style-src 'sha256-${hash('sha256', style, 'base64')}'`,
    "img-src 'self'",
    `form-action ${sources.join(' ')}`,
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ]
  const headers = {
    'content-security-policy': policy.join('; '),
    'referrer-policy': referrerPolicy,
    'cache-control': 'no-store',
  }
  const document = `<!doctype html>
<html lang="en"${colors === undefined ? '' : ` data-theme="${colors}"`}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="robots" content="noindex">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="/favicon.svg" type="image/svg+xml">
<title>${html`${title}${theme ? ` · ${theme.name}` : ''}`.html}</title>
<style>${style}</style>
</head>
<body>
${renderBody(page).html}
</body>
</html>
`
  return { status, headers, document }
}

const renderBody = ({ content, theme, isWide = false }: Page): Html =>
  theme
    ? html`<main class="themed">${appLine(theme)}${content}</main>
<footer>tollgate</footer>`
    : html`<header class="brand">tollgate</header>
<main${isWide && html` class="wide"`}>${content}</main>`

const appLine = ({ name }: Theme): Html =>
  html`<div class="app"><span aria-hidden="true">${[...name.trim()][0]?.toUpperCase() ?? ''}</span>${name}</div>`

// URL syntax allows `;`, `,`, `'` and `*` in hosts, which would change the meaning of a policy.
const hostSyntax = /^(?:[a-z0-9_](?:[a-z0-9._-]{0,252})|\[[0-9a-f:.]{2,45}\])$/

/**
 * Returns the source expression of a redirect URI (CSP level 3, section 2.3.1), built from its
 * parsed parts: scheme, host and port, or only the scheme if there is no host (RFC 8252 section
 * 7.1). Empty for a URI that a policy cannot name.
 */
export function listSources(uri: string): string[] {
  const url = URL.parse(uri)
  if (url === null) return []
  const { protocol, hostname, port } = url
  if (!/^https?:$/.test(protocol)) return /^[a-z][a-z0-9+.-]*:$/.test(protocol) ? [protocol] : []
  return hostSyntax.test(hostname) ? [`${protocol}//${hostname}${port && `:${port}`}`] : []
}

export const hidden = (fields: Readonly<Record<string, string | undefined>>): Html[] =>
  Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [html`<input type="hidden" name="${name}" value="${value}">`],
  )

export const problem = (text: string | undefined): Html | undefined =>
  text === undefined ? undefined : html`<p class="problem" role="alert">${text}</p>`
