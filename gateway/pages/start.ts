import type { App } from '../http/app.ts'
import { ownOrigins } from '../http/cors.ts'
import { type PagesDeps, pageRoute } from './forms.ts'
import { type Html, html, sendPage } from '../http/page.ts'
import { readVisitor } from './visitor.ts'

/** Adds the start page, and short names that people type. */
export function startPages(app: App, deps: PagesDeps): void {
  app.get('/', pageRoute(), async (request, reply) => {
    // The page must work without core, too.
    const visitor = await readVisitor(request, deps.publicUrl).catch(() => null)
    if (visitor !== null) return reply.redirect('/app', 303)
    return sendPage(reply, {
      title: 'tollgate',
      referrerPolicy: 'no-referrer',
      content: welcome(deps),
    })
  })
  for (const [from, to] of Object.entries(shortNames)) {
    app.get(from, pageRoute(), async ({ raw }, reply) => {
      const query = raw.url?.indexOf('?') ?? -1
      return reply.redirect(query === -1 ? to : to + raw.url?.slice(query), 302)
    })
  }
}

const shortNames = { '/docs': '/api/v1/docs/', '/device': '/oidc/device' }

const welcome = ({ publicUrl, adminPort }: PagesDeps): Html => html`
<h1>tollgate</h1>
<p>Identity, metering and billing for the operator of a remote signer.</p>
<ul>
<li><a href="/api/v1/docs/">API documents</a><small>every route, to read and to try out; as a file: /api/v1/openapi.json</small></li>
<li><a href="/app">Dashboard</a><small>log in with your account: apps, invoices, team</small></li>
<li><a href="/device">Connect a device</a><small>with the code that it shows</small></li>
<li><a href="/errors">Errors</a><small>what each code means, and what to do</small></li>
<li><a href="/.well-known/openid-configuration">OpenID configuration</a><small>${publicUrl}/api/v1/oidc is the issuer</small></li>
<li>${metricsOf(publicUrl, adminPort)}</li>
</ul>`

// The admin listener is on loopback, so its link only works on this machine.
function metricsOf(publicUrl: string, adminPort: number | undefined): Html {
  const isLocal = ownOrigins(publicUrl).length > 1
  if (!isLocal || adminPort === undefined)
    return html`Metrics and health<small>on the admin port of each process: /metrics, /healthz, /readyz</small>`
  const address = `http://127.0.0.1:${adminPort}`
  return html`<a href="${address}/metrics">Metrics</a><small><a href="${address}/readyz">health</a>, on the admin port ${adminPort}</small>`
}
