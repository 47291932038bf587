import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import { type DeviceCookies, accountName } from '../auth/device-cookies.ts'
import { textMember } from '../http/body.ts'
import { type Reloadable, currentValue } from '../../core/lib/settings/reloadable.ts'
import type { LimitSettings } from './config.ts'
import type { Counters } from './counters.ts'

export interface LoginLimitsDeps {
  readonly settings: Reloadable<LimitSettings>
  readonly counters: Counters
  /** Browsers in which people have logged in before. */
  readonly devices: DeviceCookies
  readonly addressOf: (request: FastifyRequest) => string
  readonly writeHeaders: (reply: FastifyReply, bucket: Bucket, used: number) => void
  /** Writes the headers of a full bucket and throws RATE_LIMITED. */
  readonly refuse: (reply: FastifyReply, bucket: Bucket) => never
}

interface Bucket {
  readonly name: string
  readonly limit: number
}

// Each divides the counters' minute, so that no slice spans two minutes.
const delays = [1, 2, 5, 10, 20, 30]
const delaysFromEverywhere = [1, 2, 5]

/**
 * Limits of the login pages (docs/limits.md, "Rate limits"). Attempts are counted before the
 * password is checked, so that parallel ones count as well. A known device of an account has its
 * own counters, so that strangers at its address or on its account cannot use them up. Strangers
 * are never locked out of an account: after some free attempts they wait increasingly long, longer
 * for one address than for all together.
 */
export function createLoginLimits(deps: LoginLimitsDeps) {
  const { settings, counters, devices, addressOf, writeHeaders, refuse } = deps

  /**
   * Counts the request for its device or address, before any of it is read. Throws RATE_LIMITED
   * after too many requests or failures.
   */
  const admitSource = (request: FastifyRequest, reply: FastifyReply): Promise<void> =>
    admitFrom(sourceOf(request), reply)

  /** Returns the counter's name before the body is read: the device, otherwise the address. */
  function sourceOf(request: FastifyRequest): string {
    const device = devices.deviceOf(request)
    return device === null ? addressOf(request) : `device:${device.id}`
  }

  async function admitFrom(source: string, reply: FastifyReply): Promise<void> {
    const bucket = {
      name: `login:address:${source}`,
      limit: currentValue(settings).loginPerAddress,
    }
    const failures = failuresOf(source)
    const [used, failed] = await Promise.all([
      counters.add(bucket.name),
      counters.read(failures.name),
    ])
    writeHeaders(reply, bucket, used)
    if (failed >= failures.limit) refuse(reply, failures)
    if (used > bucket.limit) refuse(reply, bucket)
  }

  const failuresOf = (source: string): Bucket => ({
    name: `failed:${source}`,
    limit: currentValue(settings).failuresPerAddress,
  })

  /**
   * Counts an attempt on the account that the form names. Throws RATE_LIMITED, with the seconds to
   * wait, if it comes too soon.
   */
  async function admit(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const account = accountOf(request)
    if (account === undefined) return
    const { failuresPerClient: here, failuresPerAddress: everywhere } = currentValue(settings)
    const device = devices.deviceOf(request)
    if (device?.account === account)
      return admitAttempt(reply, { name: `login:device:${device.id}`, free: here, delays })
    const address = addressOf(request)
    // For this account the device is a stranger, so its address counts, too.
    if (device !== null) await admitFrom(address, reply)
    await admitAttempt(reply, { name: `login:${account}:${address}`, free: here, delays })
    const name = `login:${account}`
    await admitAttempt(reply, { name, free: everywhere, delays: delaysFromEverywhere })
  }

  /**
   * Beyond the free attempts, admits one attempt per slice of the minute; each admitted attempt
   * makes the slices longer. It also takes the current slice of every greater length, so that the
   * next attempt waits for the end of a slice.
   */
  async function admitAttempt(reply: FastifyReply, attempts: Attempts): Promise<void> {
    const { name, free } = attempts
    const count = await counters.add(name)
    if (count < free) return
    const seconds = 60 - counters.resetSeconds()
    const take = (length: number): Promise<number> =>
      counters.add(`${name}:${length}:${Math.floor(seconds / length)}`)
    const delay = count === free ? 0 : await delayOf(attempts)
    if (delay > 0 && (await take(delay)) > 1) refuseAttempt(reply, delay - (seconds % delay))
    if (delay > 0) await counters.add(`${name}:late`)
    await Promise.all(attempts.delays.filter((length) => length > delay).map(take))
  }

  async function delayOf({ name, delays: lengths }: Attempts): Promise<number> {
    const late = await counters.read(`${name}:late`)
    return lengths[Math.min(late, lengths.length - 1)] ?? 0
  }

  /** Counts a failure for the account's known device, otherwise for the address. */
  function settle(request: FastifyRequest, status: number): void {
    if (status !== 401) return
    const account = accountOf(request)
    const isStranger = account !== undefined && devices.deviceOf(request)?.account !== account
    void counters.add(failuresOf(isStranger ? addressOf(request) : sourceOf(request)).name)
  }

  return { admitSource, admit, settle }
}

interface Attempts {
  readonly name: string
  /** Attempts per minute without a wait. */
  readonly free: number
  readonly delays: readonly number[]
}

function refuseAttempt(reply: FastifyReply, seconds: number): never {
  void reply.header('retry-after', String(seconds))
  throw new DomainError(
    'RATE_LIMITED',
    `too many attempts to log in to this account; try again in ${seconds} s`,
  )
}

/** Returns the account that a login form names. */
function accountOf({ body }: FastifyRequest): string | undefined {
  const email = textMember(body, 'email')
  return email === undefined || email.trim() === '' ? undefined : accountName(email)
}
