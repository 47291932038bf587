import type { FastifyReply, FastifyRequest } from 'fastify'
import { fingerprint } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import { addressOf } from './address.ts'
import { textMember } from '../http/body.ts'
import type { Counters } from './counters.ts'
import { parseBasic } from '../auth/credentials.ts'
import type { App } from '../http/listener.ts'

/** What a limited route does; each has counters of its own. */
export type LimitKind = 'token' | 'device' | 'exchange' | 'validate' | 'login'

/** How many in a minute. */
export interface LimitSettings {
  readonly perAddress: number
  readonly perClient: number
  readonly loginPerAddress: number
  readonly failuresPerAddress: number
  readonly failuresPerClient: number
}

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
 * Rate limits of routes that say so (decision 24). What counts against a client is only what it was let in for, and
 * its failures count for the address that made them: whoever knows a client id cannot use up its limits.
 */
export function createLimits({ settings, counters, trustedProxyHops }: LimitsDeps) {
  const kindOf = (request: FastifyRequest) => request.routeOptions.config.rules?.limit
  const own = (request: FastifyRequest): string => addressOf(request, trustedProxyHops)

  const failuresOf = (request: FastifyRequest): Bucket => ({
    name: `failed:${own(request)}`,
    limit: settings.failuresPerAddress,
  })
  // Into one account also from everywhere: a password may be tried from many addresses.
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

  /** Before anything is read of the request: what its address has asked and failed. RATE_LIMITED. */
  async function admitAddress(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const kind = kindOf(request)
    if (kind === undefined) return
    const limit = kind === 'login' ? settings.loginPerAddress : settings.perAddress
    const bucket = { name: `${kind}:address:${own(request)}`, limit }
    const failures = failuresOf(request)
    const [asked, failed] = await Promise.all([
      counters.add(bucket.name),
      counters.read(failures.name),
    ])
    show(reply, bucket, asked)
    if (failed >= failures.limit) refuse(reply, failures)
    if (asked > limit) refuse(reply, bucket)
  }

  /** Once the body is read: what the client or account that it names has asked and failed. RATE_LIMITED. */
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
    const asked = await counters.read(bucket.name)
    if (asked >= bucket.limit) refuse(reply, bucket)
    if (bucket.limit - asked - 1 < Number(reply.getHeader('ratelimit-remaining')))
      show(reply, bucket, asked + 1)
  }

  /** Counts how it ended. Nobody waits for it; the next question comes after it on the same connection. */
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

  function show(reply: FastifyReply, { limit }: Bucket, used: number): void {
    void reply.headers({
      'ratelimit-limit': String(limit),
      'ratelimit-remaining': String(Math.max(limit - used, 0)),
      'ratelimit-reset': String(counters.resetSeconds()),
    })
  }

  function refuse(reply: FastifyReply, bucket: Bucket): never {
    show(reply, bucket, bucket.limit)
    const seconds = counters.resetSeconds()
    void reply.header('retry-after', String(seconds))
    throw new DomainError('RATE_LIMITED', `too many requests; try again in ${seconds} s`)
  }

  return { admitAddress, admitClient, settle, stop: counters.stop }
}

export type Limits = ReturnType<typeof createLimits>

/** The client that the request names, whoever sent it: by Basic, in the form, or in the path. */
function clientOf({ headers, body, params }: FastifyRequest): string | undefined {
  const named =
    parseBasic(headers.authorization ?? '')?.id ??
    (Buffer.isBuffer(body) ? undefined : textMember(body, 'client_id')) ??
    textMember(params, 'clientId')
  return named === undefined ? undefined : fingerprint(named)
}

/** The account that somebody wants to log in to; its address is the same in any case. */
function accountOf({ body }: FastifyRequest): string | undefined {
  const email = textMember(body, 'email')?.trim().toLowerCase()
  return email === undefined || email === '' ? undefined : fingerprint(email)
}

/** The part of the limits that comes after the body is parsed. `admitAddress` runs in the listener's own hook. */
export function limitHooks(app: App, limits: Limits): void {
  app.addHook('preValidation', (request, reply) => limits.admitClient(request, reply))
  app.addHook('onSend', async (request, reply) => limits.settle(request, reply.statusCode))
}
