import type { App } from '../http/app.ts'

/** Everything at the builder API's listener: for now its health check. */
export function builderRoutes(app: App): void {
  app.get('/health', (_, reply) => reply.type('text/plain; charset=utf-8').send('ok'))
}
