import type { FastifyReply, FastifyRequest } from 'fastify'
import { fingerprint } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import { parseBasic } from '../auth/credentials.ts'
import type { App } from '../http/app.ts'
import { textMember } from '../http/body.ts'
import { addressOf } from './address.ts'
import type { LimitSettings } from './config.ts'
import type { Counters } from './counters.ts'

/** Kinds of limited routes; each has counters of its own. */
export type LimitKind = 'token' | 'device' | 'exchange' | 'validate' | 'login'

export interface LimitsDeps {
  readonly settings: LimitSettings
  readonly counters: Counters
  readonly trustedProxyHops: number
}

interface Bucket {
  readonly name: string
  readonly limit: number
}

/**
 * Rate limits of the routes that declare one (decision 24). A client's limit counts only requests that were accepted,
 * and failed authentications count for the address that made them, so that a stranger who knows a client id cannot use
 * up its limits.
 */
export function createLimits({ settings, counters, trustedProxyHops }: LimitsDeps) {
  const kindOf = (request: FastifyRequest) => request.routeOptions.config.rules?.limit
  const own = (request: FastifyRequest): string => addressOf(request, trustedProxyHops)

  const failuresOf = (request: FastifyRequest): Bucket => ({
    name: `failed:${own(request)}`,
    limit: settings.failuresPerAddress,
  })
  // Failed logins into one account also count from everywhere: a password may be guessed from many addresses.
  function namedFailuresOf(request: FastifyRequest): Bucket[] {
    const account = kindOf(request) === 'login' ? accountOf(request) : undefined
    const name = account ?? clientOf(request)
    const here =
      name === undefined
        ? []
        : [{ name: `failed:${name}:${own(request)}`, limit: settings.failuresPerClient }]
    return account === undefined
      ? here
      : [...here, { name: `failed:${account}`, limit: settings.failuresPerAddress }]
  }

  const clientBucket = (kind: LimitKind, client: string): Bucket => ({
    name: `${kind}:client:${client}`,
    limit: settings.perClient,
  })

  /** Counts the request for its address, before any of it is read. RATE_LIMITED when the address has made too many, or failed too often. */
  async function admitAddress(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const kind = kindOf(request)
    if (kind === undefined) return
    const limit = kind === 'login' ? settings.loginPerAddress : settings.perAddress
    const bucket = { name: `${kind}:address:${own(request)}`, limit }
    const failures = failuresOf(request)
    const [used, failed] = await Promise.all([
      counters.add(bucket.name),
      counters.read(failures.name),
    ])
    writeHeaders(reply, bucket, used)
    if (failed >= failures.limit) refuse(reply, failures)
    if (used > limit) refuse(reply, bucket)
  }

  /** Checks the client or account that the request names, once its body is parsed. RATE_LIMITED when it has made too many requests, or failed too often. */
  async function admitClient(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const kind = kindOf(request)
    if (kind === undefined) return
    await Promise.all(
      namedFailuresOf(request).map(async (failures) => {
        if ((await counters.read(failures.name)) >= failures.limit) refuse(reply, failures)
      }),
    )
    const client = clientOf(request)
    if (client === undefined) return
    const bucket = clientBucket(kind, client)
    const used = await counters.read(bucket.name)
    if (used >= bucket.limit) refuse(reply, bucket)
    if (bucket.limit - used - 1 < Number(reply.getHeader('ratelimit-remaining')))
      writeHeaders(reply, bucket, used + 1)
  }

  /** Counts the outcome for the client. It is not awaited: commands of one connection keep their order. */
  function settle(request: FastifyRequest, status: number): void {
    const kind = kindOf(request)
    if (kind === undefined || status === 429) return
    const client = clientOf(request)
    if (status === 401)
      return [failuresOf(request), ...namedFailuresOf(request)].forEach(
        ({ name }) => void counters.add(name),
      )
    if (client !== undefined) void counters.add(clientBucket(kind, client).name)
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

  return { admitAddress, admitClient, settle, stop: counters.stop }
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

/** The account that a login names. E-mail addresses are compared without regard to case. */
function accountOf({ body }: FastifyRequest): string | undefined {
  const email = textMember(body, 'email')?.trim().toLowerCase()
  return email === undefined || email === '' ? undefined : fingerprint(email)
}

/** Adds the hooks that run after the body is parsed. `admitAddress` runs in the listener's own hook. */
export function limitHooks(app: App, limits: Limits): void {
  app.addHook('preValidation', (request, reply) => limits.admitClient(request, reply))
  app.addHook('onSend', async (request, reply) => limits.settle(request, reply.statusCode))
}
