import { hash } from 'node:crypto'
import type { FastifyReply } from 'fastify'
import { type Html, html } from './html.ts'
import { ownColor, styleOf } from './style.ts'

/** The app in whose name a page speaks. */
export interface Theme {
  readonly name: string
  readonly color: string
}

export interface Page {
  readonly title: string
  readonly content: Html
  readonly theme?: Theme | undefined
  readonly status?: number
  /** Where a form of this page may lead in the end, besides this site: browsers hold redirects against form-action. */
  readonly leadsTo?: string | undefined
}

/** Sends a page. Nothing on it comes from elsewhere and nothing runs: no script, image, frame or foreign form. */
export function sendPage(
  reply: FastifyReply,
  { title, content, theme, status = 200, leadsTo }: Page,
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
  // With no-referrer browsers would send `Origin: null` with our own forms (Fetch standard, "append a request Origin").
  void reply.headers({
    'content-security-policy': policy.join('; '),
    'referrer-policy': 'same-origin',
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
