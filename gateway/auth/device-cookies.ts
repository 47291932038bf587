import { randomBytes } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { fingerprint } from '../../core/lib/crypto.ts'
import { normalizeEmail } from '../../core/lib/text/email.ts'
import { readCookie, setCookie } from './session.ts'
import type { SignedValues } from './signed-values.ts'

/** A browser in which somebody has logged in to an account before. */
export interface Device {
  /** As `accountName` has it. */
  readonly account: string
  readonly id: string
}

const cookieName = 'tollgate_device'
const lifetimeSeconds = 180 * 86_400
const syntax = /^([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{22})$/

/**
 * Device cookies (OWASP, "Slow Down Online Guessing Attacks with Device Cookies"): after a login the browser gets a signed
 * cookie for that account, and its later attempts are counted apart from those of strangers.
 */
export function createDeviceCookies({
  values,
  publicUrl,
}: {
  values: SignedValues
  publicUrl: string
}) {
  /** The device that the request's cookie tells of; null without one that we gave. */
  function deviceOf(request: FastifyRequest): Device | null {
    const text = values.open(readCookie(request, cookieName, publicUrl) ?? '')
    const [, account, id] = syntax.exec(text ?? '') ?? []
    return account === undefined || id === undefined ? null : { account, id }
  }

  /** Makes the browser a known device of the account. One that is known keeps its id, and so what was counted for it. */
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

/** How limits and cookies name the account of an address: the same for all forms of one address (docs/decisions/41.md). */
export const accountName = (email: string): string =>
  fingerprint(normalizeEmail(email) ?? email.trim().toLowerCase())
