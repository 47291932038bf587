import { randomUUID } from 'node:crypto'

/** Proves to core that a call comes from one of our own processes or an operator's command. */
export const serviceTokenHeader = 'x-tollgate-service-token'
/**
 * Who runs an operator's command: OS user and host, percent-encoded. For the audit log only; it
 * proves nothing.
 */
export const operatorHeader = 'x-tollgate-operator'
/** The token of a dashboard session, forwarded by the gateway. */
export const sessionHeader = 'x-tollgate-session'
/**
 * The app as whose end user the session's account calls, set by the gateway on a person's own
 * routes. The account can name no other user.
 */
export const selfHeader = 'x-tollgate-self'
export const correlationHeader = 'x-correlation-id'

/** Path prefix of the gateway's OIDC routes. The issuer is PUBLIC_URL with this path. */
export const issuerPath = '/api/v1/oidc'

const syntax = /^[A-Za-z0-9._-]{1,64}$/

/** The caller's correlation id if it is fit for a log line, otherwise a new one (decision 20). */
export const correlationIdFrom = (value: unknown): string =>
  typeof value === 'string' && syntax.test(value) ? value : randomUUID()
