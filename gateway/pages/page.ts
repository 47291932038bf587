import { hash } from 'node:crypto'
import type { FastifyReply } from 'fastify'
import { ownColor, styleOf } from './style.ts'

/** HTML text. Only `html` makes it, and escapes every value in it that is not HTML itself. */
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

/** The app that a page belongs to in the eyes of its visitor. */
export interface Theme {
  readonly name: string
  readonly color: string
}

export interface Page {
  readonly title: string
  readonly content: Html
  readonly theme?: Theme | undefined
  readonly status?: number
  /** An address of another site at which a form of this page may end: browsers apply form-action to redirects, too. */
  readonly leadsTo?: string | undefined
  /**
   * For a page without forms. With no-referrer, browsers would send `Origin: null` with our own forms (Fetch standard,
   * "append a request Origin").
   */
  readonly referrerPolicy?: 'no-referrer' | 'same-origin'
}

/** Sends a page. Its policy allows no script, image or frame, nothing from another host, and no form to another site. */
export function sendPage(
  reply: FastifyReply,
  { title, content, theme, status = 200, leadsTo, referrerPolicy = 'same-origin' }: Page,
): FastifyReply {
  const style = styleOf(theme?.color ?? ownColor)
  const sources = ["'self'", ...(leadsTo === undefined ? [] : [formTarget(leadsTo)])]
  const policy = [
    "default-src 'none'",
    `style-src 'sha256-${hash('sha256', style, 'base64')}'`,
    `form-action ${sources.join(' ')}`,
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ]
  void reply.headers({
    'content-security-policy': policy.join('; '),
    'referrer-policy': referrerPolicy,
    'cache-control': 'no-store',
  })
  const document = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="robots" content="noindex">
<title>${html`${title}${theme ? ` · ${theme.name}` : ''}`.html}</title>
<style>${style}</style>
</head>
<body>
<main>${theme ? appLine(theme).html : ''}${content.html}</main>
<footer>tollgate</footer>
</body>
</html>
`
  return reply.code(status).type('text/html; charset=utf-8').send(document)
}

const appLine = ({ name }: Theme): Html =>
  html`<div class="app"><span aria-hidden="true">${[...name.trim()][0]?.toUpperCase() ?? ''}</span>${name}</div>`

/** The source expression of a redirect URI: its origin, or its scheme where there is no host (RFC 8252 section 7.1). */
function formTarget(uri: string): string {
  const { origin, protocol } = new URL(uri)
  return origin === 'null' ? protocol : origin
}

export const hidden = (fields: Readonly<Record<string, string | undefined>>): Html[] =>
  Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [html`<input type="hidden" name="${name}" value="${value}">`],
  )

export const problem = (text: string | undefined): Html | undefined =>
  text === undefined ? undefined : html`<p class="problem" role="alert">${text}</p>`
