import { DomainError } from '../../../proto/errors.ts'
import type * as escrow from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/balances/v1/limits.ts'
import { isReadable, unreadableKinds } from '../../lib/text/readable.ts'
import {
  type UsdAttos,
  microsDown,
  microsToAttos,
  parseInteger,
  usdMicros,
} from '../../lib/money.ts'
import { type Limits, type PriceCeiling, noLimits, sessionTypes } from './limits.ts'

/** A billion dollars, as for a credit. */
const amountMax = 10n ** 15n
const callsMax = 1_000_000
const sessionsMax = 10_000
/** Every answer to a sidecar carries them. */
const ceilingsMax = 50
/** The signer's prices are 64-bit integers. */
const weiMax = 2n ** 63n - 1n
const appMax = 200

/**
 * Parses the limits of a request. Throws AMOUNT_INVALID or REQUEST_INVALID for values out of
 * bounds, or if no limit is set.
 */
export function parseLimits(request: pb.Limits | undefined): Limits {
  const { usdMicrosPerDay, usdMicrosPerSession, callsPerMinute, concurrentSessions, maxPrices } =
    request ?? { maxPrices: [] }
  const limits: Limits = {
    day: parseAmount('usdMicrosPerDay', usdMicrosPerDay),
    session: parseAmount('usdMicrosPerSession', usdMicrosPerSession),
    minuteCalls: parseCount('callsPerMinute', callsPerMinute, callsMax),
    sessions: parseCount('concurrentSessions', concurrentSessions, sessionsMax),
    ceilings: parseCeilings(maxPrices),
  }
  const { ceilings, ...figures } = limits
  if (ceilings.length === 0 && Object.values(figures).every((value) => value === null))
    throw new DomainError('REQUEST_INVALID', 'set at least one limit; DELETE removes them all')
  return limits
}

function parseAmount(name: string, text: string | undefined): UsdAttos | null {
  if (text === undefined) return null
  const value = parseInteger(text)
  if (value === null || value <= 0n || value > amountMax)
    throw new DomainError(
      'AMOUNT_INVALID',
      `${name} must be a positive integer string of at most ${amountMax}`,
    )
  return microsToAttos(usdMicros(value))
}

function parseCount(name: string, value: number | undefined, max: number): number | null {
  if (value === undefined) return null
  if (!Number.isInteger(value) || value < 1 || value > max)
    throw new DomainError('REQUEST_INVALID', `${name} must be an integer from 1 to ${max}`)
  return value
}

function parseCeilings(messages: readonly escrow.PriceCeiling[]): PriceCeiling[] {
  if (messages.length > ceilingsMax)
    throw new DomainError('REQUEST_INVALID', `maxPrices must be at most ${ceilingsMax}`)
  const ceilings = messages.map(parseCeiling)
  const names = new Set(ceilings.map(({ type, app }) => `${type} ${app}`))
  if (names.size < ceilings.length)
    throw new DomainError('REQUEST_INVALID', 'maxPrices must name each type and app once')
  return ceilings
}

function parseCeiling({ type: text, app, maxWei }: escrow.PriceCeiling): PriceCeiling {
  const type = sessionTypes.find((known) => known === text)
  if (!type)
    throw new DomainError(
      'REQUEST_INVALID',
      `the type of a price must be one of: ${sessionTypes.join(', ')}`,
    )
  if (app.length > appMax || !isReadable(app))
    throw new DomainError(
      'REQUEST_INVALID',
      `the app of a price must have at most ${appMax} characters, and ${unreadableKinds}`,
    )
  const wei = parseInteger(maxWei)
  if (wei === null || wei <= 0n || wei > weiMax)
    throw new DomainError(
      'REQUEST_INVALID',
      `maxWei must be a positive integer string of at most ${weiMax}`,
    )
  return { type, app, maxWei: wei }
}

export const renderCeiling = ({ type, app, maxWei }: PriceCeiling): escrow.PriceCeiling => ({
  type,
  app,
  maxWei: maxWei.toString(),
})

export const renderLimits = (limits: Limits = noLimits): pb.Limits => ({
  usdMicrosPerDay: renderAmount(limits.day),
  usdMicrosPerSession: renderAmount(limits.session),
  callsPerMinute: limits.minuteCalls ?? undefined,
  concurrentSessions: limits.sessions ?? undefined,
  maxPrices: limits.ceilings.map(renderCeiling),
})

const renderAmount = (attos: UsdAttos | null): string | undefined =>
  attos === null ? undefined : microsDown(attos).toString()
