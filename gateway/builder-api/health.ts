import type { App } from '../http/listener.ts'

/** The builder listener's health check (service specification, surface A). */
export function builderHealthRoutes(app: App): void {
  app.get('/health', (_, reply) => reply.type('text/plain; charset=utf-8').send('ok'))
}
