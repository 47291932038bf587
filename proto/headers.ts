import { randomUUID } from 'node:crypto'

/** Proves to core that a call comes from one of our own processes or an operator's command. */
export const serviceTokenHeader = 'x-tollgate-service-token'
/** Who runs an operator's command: OS user and host, percent-encoded. Told for the audit log, and proves nothing. */
export const operatorHeader = 'x-tollgate-operator'
/** The token of a dashboard session, forwarded by the gateway. */
export const sessionHeader = 'x-tollgate-session'
export const correlationHeader = 'x-correlation-id'

/** Where the OIDC routes of the gateway begin; the issuer is PUBLIC_URL with this path. */
export const issuerPath = '/api/v1/oidc'

const syntax = /^[A-Za-z0-9._-]{1,64}$/

/** The correlation id that a caller sent when it is fit for a log line, otherwise a new one (decision 20). */
export const correlationIdFrom = (value: unknown): string =>
  typeof value === 'string' && syntax.test(value) ? value : randomUUID()
