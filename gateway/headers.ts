import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

const correlationId = /^[A-Za-z0-9._-]{1,64}$/

/** The caller's correlation id when it is fit for a log line, otherwise a new one (decision 20). */
export function correlationIdOf(request: IncomingMessage): string {
  const given = request.headers['x-correlation-id']
  return typeof given === 'string' && correlationId.test(given) ? given : randomUUID()
}

/** On every answer. Nothing is cached unless its route says so: most answers are about persons or money. */
export const securityHeaders = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
}
