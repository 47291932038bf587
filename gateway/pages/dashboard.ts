import { join } from 'node:path'
import { existsSync, readFileSync } from 'node:fs'
import fastifyStatic from '@fastify/static'
import type { App } from '../http/app.ts'
import { html, sendPage } from '../http/page.ts'
import { type PagesDeps, pageRoute } from './forms.ts'
import { readVisitor, toLogin } from './visitor.ts'

const dist = join(import.meta.dirname, '../web/dist')

/** Scripts, styles and requests of this server only, and no text that a page runs as a program. */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ')

/**
 * Serves the dashboard, a program in the browser (`gateway/web`), at /app. Each of its views is the
 * same document; a person without a session is sent to the login first, and back after it.
 */
export function dashboardPages(app: App, { publicUrl }: PagesDeps): void {
  const index = join(dist, 'index.html')
  const document = existsSync(index) ? readFileSync(index) : null

  for (const path of ['/app', '/app/*'])
    app.get(path, pageRoute(), async (request, reply) => {
      const visitor = await readVisitor(request, publicUrl)
      if (visitor === null) return toLogin(reply, request.url)
      if (document === null) return sendPage(reply, missing)
      return reply
        .headers({
          'content-security-policy': policy,
          'referrer-policy': 'same-origin',
          'cache-control': 'no-store',
        })
        .type('text/html; charset=utf-8')
        .send(document)
    })

  // Their names contain a digest of their content.
  if (document !== null)
    void app.register(fastifyStatic, {
      root: join(dist, 'assets'),
      prefix: '/app/assets/',
      decorateReply: false,
      index: false,
      immutable: true,
      preCompressed: true,
      maxAge: '365d',
    })
}

const missing = {
  title: 'Not built',
  status: 503,
  content: html`<h1>The dashboard is not built</h1><p>Run <code>npm run build</code> in the folder of the service, and start it again.</p>`,
} as const
