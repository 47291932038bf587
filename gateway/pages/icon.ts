import type { App } from '../http/app.ts'
import { pageRoute } from './forms.ts'
import { ownColor } from '../http/style/style.ts'

/** Our icon: a bar across a road, in our color. */
export const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="${ownColor}"/>
<path d="M6 20h20M10 20V9m12 11V9M6 25h20" stroke="#fff" stroke-width="3" stroke-linecap="round"/></svg>`

const addresses = ['/favicon.svg', '/favicon.ico']

/** Adds the icon of all pages. Browsers fetch the second address if a document names none. */
export function iconRoutes(app: App): void {
  for (const address of addresses)
    app.get(address, pageRoute(), async (_, reply) =>
      reply.type('image/svg+xml').header('cache-control', 'public, max-age=86400').send(icon),
    )
}
