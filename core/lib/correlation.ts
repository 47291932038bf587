import { randomUUID } from 'node:crypto'

const syntax = /^[A-Za-z0-9._-]{1,64}$/

/** The correlation id that somebody gave when it is fit for a log line, otherwise a new one (decision 20). */
export const correlationIdFrom = (given: unknown): string =>
  typeof given === 'string' && syntax.test(given) ? given : randomUUID()
