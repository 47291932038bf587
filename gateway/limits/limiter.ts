import type { FastifyReply, FastifyRequest } from 'fastify'
import { fingerprint } from '../../core/lib/crypto.ts'
import { DomainError, type Reason, reasons } from '../../proto/errors.ts'
import { parseBasic } from '../auth/credentials.ts'
import type { DeviceCookies } from '../auth/device-cookies.ts'
import type { App } from '../http/app.ts'
import { textMember } from '../http/body.ts'
import { addressOf } from './address.ts'
import type { LimitSettings } from './config.ts'
import type { Counters, Reservation } from './counters.ts'
import {
  type CredentialAdmission,
  createCredentialLimits,
  slowedRefusal,
} from './credential-limits.ts'
import { createLoginLimits } from './login-limits.ts'

/** Kinds of limited routes; each has counters of its own. Of `failures` only wrong credentials are counted. */
export type LimitKind =
  'token' | 'device' | 'exchange' | 'validate' | 'users' | 'login' | 'edge' | 'failures'

export interface LimitsDeps {
  readonly settings: LimitSettings
  readonly counters: Counters
  readonly trustedProxyHops: number
  /** The browsers in which people have logged in before. */
  readonly devices: DeviceCookies
}

interface Bucket {
  readonly name: string
  readonly limit: number
}

/** What a request has taken of its limits. */
export interface LimitAdmission {
  /** Counts of requests, which a request that was refused gives back. */
  readonly requests: Reservation[]
  credential: CredentialAdmission | undefined
  /** Why the request was refused, also where the answer is to wait. */
  reason: Reason | undefined
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Set where the route has a limit. */
    admission: LimitAdmission | undefined
  }
}

/**
 * Rate limits of the routes that declare one (decision 24). Requests are counted before they are looked at; what is then
 * refused for its credential counts among the failures instead (credential-limits.ts), so that a stranger who knows a
 * client id, or shares an address, cannot use up others' limits.
 */
export function createLimits({ settings, counters, trustedProxyHops, devices }: LimitsDeps) {
  const kindOf = (request: FastifyRequest) => request.routeOptions.config.rules?.limit
  const own = (request: FastifyRequest): string => addressOf(request, trustedProxyHops)

  const clientBucket = (kind: LimitKind, client: string): Bucket => ({
    name: `${kind}:client:${client}`,
    limit: settings.perClient,
  })

  /** Counts the request for its address, before any of it is read. RATE_LIMITED when the address has made too many. */
  async function admitAddress(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const kind = kindOf(request)
    if (kind === undefined) return
    if (kind === 'login') return logins.admitSource(request, reply)
    request.admission = { requests: [], credential: undefined, reason: undefined }
    if (kind === 'failures') return
    const bucket = { name: `${kind}:address:${own(request)}`, limit: settings.perAddress }
    await countRequest(request, reply, bucket)
  }

  /** Counts the request in a bucket. RATE_LIMITED when it is full. The headers tell of the bucket with the least left. */
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

  /** Checks the client or account that the request names, once its body is parsed. RATE_LIMITED when it has made too many requests, or failed too often. */
  async function admitClient(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { admission } = request
    if (kindOf(request) === 'login') return logins.admit(request, reply)
    const kind = kindOf(request)
    if (kind === undefined || admission === undefined) return
    await admitCredential(request, reply)
    const client = kind === 'failures' ? undefined : clientOf(request)
    if (client !== undefined) await countRequest(request, reply, clientBucket(kind, client))
  }

  /** Checks what the request proves itself with, once: a route may do it before its body is parsed. */
  async function admitCredential(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    if (request.admission === undefined) return
    request.admission.credential ??= await credentials.admit(request, reply, own(request))
  }

  /** Counts the outcome. It is not awaited: commands of one connection keep their order. */
  function settle(request: FastifyRequest, status: number): void {
    const { admission } = request
    if (kindOf(request) === 'login') return logins.settle(request, status)
    if (admission === undefined) return
    admission.credential?.settle({ status, reason: admission.reason })
    if (status === 401 || status === 429)
      for (const request of admission.requests) request.takeBack()
    request.admission = undefined
  }

  /** What the caller is told: where its address has failed too often, a wrong credential is told to wait. */
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

/** The client that the request names, by Basic, in the form or in the path; it need not be authenticated. */
function clientOf({ headers, body, params }: FastifyRequest): string | undefined {
  const clientId =
    parseBasic(headers.authorization ?? '')?.id ??
    (Buffer.isBuffer(body) ? undefined : textMember(body, 'client_id')) ??
    textMember(params, 'clientId')
  return clientId === undefined ? undefined : fingerprint(clientId)
}

/**
 * Adds the hooks that run after the body is parsed, to the routes that have a limit and are added from now on.
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
