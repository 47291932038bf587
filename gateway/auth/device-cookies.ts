import { randomBytes } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { fingerprint } from '../../core/lib/crypto.ts'
import { normalizeEmail } from '../../core/lib/text/email.ts'
import { readCookie, setCookie } from './session.ts'
import type { SignedValues } from './signed-values.ts'

/** A browser in which a person has logged in to an account. */
export interface Device {
  /** The output of `accountName`. */
  readonly account: string
  readonly id: string
}

const cookieName = 'tollgate_device'
const lifetimeSeconds = 180 * 86_400
const syntax = /^([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{22})$/

/**
 * Device cookies (OWASP, "Slow Down Online Guessing Attacks with Device Cookies"): after a login
 * the browser gets a signed cookie for that account, so that its later attempts are counted
 * separately from those of strangers.
 */
export function createDeviceCookies({
  values,
  publicUrl,
}: {
  values: SignedValues
  publicUrl: string
}) {
  /** Returns the device in the request's cookie, null if there is no valid cookie. */
  function deviceOf(request: FastifyRequest): Device | null {
    const text = values.open(readCookie(request, cookieName, publicUrl) ?? '')
    const [, account, id] = syntax.exec(text ?? '') ?? []
    return account === undefined || id === undefined ? null : { account, id }
  }

  /**
   * Marks the browser as a known device of the account. A known device keeps its id and therefore
   * its counters.
   */
  function remember(request: FastifyRequest, reply: FastifyReply, email: string): void {
    const account = accountName(email)
    const device = deviceOf(request)
    const id = device?.account === account ? device.id : randomBytes(16).toString('base64url')
    const value = values.sign(`${account}.${id}`, lifetimeSeconds)
    const cookie = setCookie(cookieName, value, { publicUrl, maxAge: lifetimeSeconds })
    void reply.header('set-cookie', cookie)
  }

  return { deviceOf, remember }
}

export type DeviceCookies = ReturnType<typeof createDeviceCookies>

/**
 * Returns the account's name in limits and cookies, the same for all spellings of one address
 * (docs/decisions/41.md).
 */
export const accountName = (email: string): string =>
  fingerprint(normalizeEmail(email) ?? email.trim().toLowerCase())
