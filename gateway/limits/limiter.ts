import type { FastifyReply, FastifyRequest } from 'fastify'
import { fingerprint } from '../../core/lib/crypto.ts'
import { DomainError, type Reason, reasons } from '../../proto/errors.ts'
import { parseBasic } from '../auth/credentials.ts'
import type { DeviceCookies } from '../auth/device-cookies.ts'
import type { App } from '../http/app.ts'
import { textMember } from '../http/body.ts'
import type { LimitKind } from '../http/route.ts'
import { readAddress } from './address.ts'
import { type Reloadable, currentValue } from '../../core/lib/settings/reloadable.ts'
import type { LimitSettings } from './config.ts'
import type { Counters, Reservation } from './counters.ts'
import {
  type CredentialAdmission,
  createCredentialLimits,
  slowedRefusal,
} from './credential-limits.ts'
import { createLoginLimits } from './login-limits.ts'

export interface LimitsDeps {
  readonly settings: Reloadable<LimitSettings>
  readonly counters: Counters
  readonly trustedProxyHops: number
  /** Browsers in which people have logged in before. */
  readonly devices: DeviceCookies
}

interface Bucket {
  readonly name: string
  readonly limit: number
}

/** The request's share of its limits. */
export interface LimitAdmission {
  /** Counts of this request, which are taken back if it is refused. */
  readonly requests: Reservation[]
  credential: CredentialAdmission | undefined
  /** Why the request was refused, even if the answer was to wait. */
  reason: Reason | undefined
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Set if the route has a limit. */
    admission: LimitAdmission | undefined
  }
}

/**
 * Rate limits of the routes that declare one (decision 24). Requests are counted before they are
 * processed. A request refused for its credential then counts as a failure instead
 * (credential-limits.ts), so that a stranger who knows a client id, or shares an address, cannot
 * use up others' limits.
 */
export function createLimits({ settings, counters, trustedProxyHops, devices }: LimitsDeps) {
  const kindOf = (request: FastifyRequest) => request.routeOptions.config.rules?.limit
  const own = (request: FastifyRequest): string => readAddress(request, trustedProxyHops)

  const clientBucket = (kind: LimitKind, client: string): Bucket => ({
    name: `${kind}:client:${client}`,
    limit: currentValue(settings).perClient,
  })

  /**
   * Counts the request for its address, before any of it is read. Throws RATE_LIMITED if the
   * address has made too many.
   */
  async function admitAddress(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const kind = kindOf(request)
    if (kind === undefined) return
    if (kind === 'login') return logins.admitSource(request, reply)
    request.admission = { requests: [], credential: undefined, reason: undefined }
    if (kind === 'failures') return
    const bucket = {
      name: `${kind}:address:${own(request)}`,
      limit: currentValue(settings).perAddress,
    }
    await countRequest(request, reply, bucket)
  }

  /**
   * Counts the request in a bucket. Throws RATE_LIMITED if it is full. The headers describe the
   * bucket with the least left.
   */
  async function countRequest(
    request: FastifyRequest,
    reply: FastifyReply,
    bucket: Bucket,
  ): Promise<void> {
    const count = await counters.reserve(bucket.name)
    request.admission?.requests.push(count)
    if (count.sum > bucket.limit) refuse(reply, bucket)
    const left = reply.getHeader('ratelimit-remaining')
    if (left === undefined || bucket.limit - count.sum < Number(left))
      writeHeaders(reply, bucket, count.sum)
  }

  /**
   * Checks the client or account that the request names, after its body is parsed. Throws
   * RATE_LIMITED after too many requests or failures.
   */
  async function admitClient(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { admission } = request
    if (kindOf(request) === 'login') return logins.admit(request, reply)
    const kind = kindOf(request)
    if (kind === undefined || admission === undefined) return
    await admitCredential(request, reply)
    const client = kind === 'failures' ? undefined : clientOf(request)
    if (client !== undefined) await countRequest(request, reply, clientBucket(kind, client))
  }

  /** Checks the request's credential, only once: a route may do it before its body is parsed. */
  async function admitCredential(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    if (request.admission === undefined) return
    request.admission.credential ??= await credentials.admit(request, reply, own(request))
  }

  /** Counts the outcome. Not awaited, because commands of one connection keep their order. */
  function settle(request: FastifyRequest, status: number): void {
    const { admission } = request
    if (kindOf(request) === 'login') return logins.settle(request, status)
    if (admission === undefined) return
    admission.credential?.settle({ status, reason: admission.reason })
    if (status === 401 || status === 429)
      for (const request of admission.requests) request.takeBack()
    request.admission = undefined
  }

  /**
   * Returns the error to send. If the address has failed too often, a wrong credential gets
   * RATE_LIMITED instead.
   */
  function refusalOf(
    request: FastifyRequest,
    reply: FastifyReply,
    error: DomainError,
  ): DomainError {
    const { admission } = request
    if (admission === undefined) return error
    const { reason } = error
    admission.reason = reason
    if (!admission.credential?.isSlowed({ status: reasons[reason].http, reason })) return error
    void reply.header('retry-after', String(counters.resetSeconds()))
    return slowedRefusal()
  }

  function writeHeaders(reply: FastifyReply, { limit }: Bucket, used: number): void {
    void reply.headers({
      'ratelimit-limit': String(limit),
      'ratelimit-remaining': String(Math.max(limit - used, 0)),
      'ratelimit-reset': String(counters.resetSeconds()),
    })
  }

  function refuse(reply: FastifyReply, bucket: Bucket): never {
    writeHeaders(reply, bucket, bucket.limit)
    const seconds = counters.resetSeconds()
    void reply.header('retry-after', String(seconds))
    throw new DomainError('RATE_LIMITED', `too many requests; try again in ${seconds} s`)
  }

  const credentials = createCredentialLimits({ settings, counters, refuse })
  const shared = { settings, counters, devices, writeHeaders, refuse }
  const logins = createLoginLimits({ ...shared, addressOf: own })

  return { admitAddress, admitCredential, admitClient, refusalOf, settle }
}

export type Limits = ReturnType<typeof createLimits>

/** Returns the client named by Basic, form or path. It may be unauthenticated. */
function clientOf({ headers, body, params }: FastifyRequest): string | undefined {
  const clientId =
    parseBasic(headers.authorization ?? '')?.id ??
    (Buffer.isBuffer(body) ? undefined : textMember(body, 'client_id')) ??
    textMember(params, 'clientId')
  return clientId === undefined ? undefined : fingerprint(clientId)
}

/**
 * Adds hooks that run after the body is parsed to each limited route that is added later.
 * `admitAddress` runs in the listener's own hook.
 */
export function limitHooks(app: App, limits: Limits): void {
  app.decorateRequest('admission', undefined)
  app.addHook('onRoute', (route) => {
    if (route.config?.rules?.limit === undefined) return
    route.preValidation = [
      route.preValidation ?? [],
      async (request: FastifyRequest, reply: FastifyReply) => limits.admitClient(request, reply),
    ].flat()
    route.onSend = [
      route.onSend ?? [],
      async (request: FastifyRequest, reply: FastifyReply) =>
        limits.settle(request, reply.statusCode),
    ].flat()
  })
}
