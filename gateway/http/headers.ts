import type { IncomingMessage } from 'node:http'
import { correlationIdFrom } from '../../core/lib/correlation.ts'

/** The caller's correlation id, or a new one. */
export const correlationIdOf = (request: IncomingMessage): string =>
  correlationIdFrom(request.headers['x-correlation-id'])

/** On every answer. Nothing is cached unless its route says so: most answers are about persons or money. */
export const securityHeaders = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
}
