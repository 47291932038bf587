import { DomainError } from '../../proto/errors.ts'
import { eventTypes } from '../../proto/events.ts'
import type { Outbound } from '../lib/outbound/outbound.ts'
import { isReadable, unreadableKinds } from '../lib/text/readable.ts'
import { parseInstant, parseUtcDay } from '../lib/time.ts'
import { type DeliveryState, deliveryStates } from './delivery-store.ts'
import type { EndpointStatus } from './endpoint-store.ts'
import { type Signing, signings } from './secret-store.ts'

const urlMax = 1_024
const descriptionMax = 200

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)

/** Parses the address of an endpoint. Names are resolved only when something is sent. */
export function parseUrl(text: string, { requireTarget }: Pick<Outbound, 'requireTarget'>): string {
  const url = text.trim()
  if (url === '') throw invalid('url is required')
  if (url.length > urlMax || !isReadable(url))
    throw invalid(`url must have at most ${urlMax} characters and ${unreadableKinds}`)
  try {
    requireTarget(url)
  } catch (error) {
    throw invalid(`url ${error instanceof Error ? error.message : 'cannot be used'}`)
  }
  if (new URL(url).hash !== '') throw invalid('url must have no fragment')
  return url
}

export function parseDescription(text: string): string {
  const description = text.trim()
  if (description.length > descriptionMax || !isReadable(description))
    throw invalid(
      `description must have at most ${descriptionMax} characters and ${unreadableKinds}`,
    )
  return description
}

/** Parses event types; an empty list means all types, now and in later versions. */
export function parseEventTypes(types: readonly string[]): string[] {
  const unknown = types.find((type) => !eventTypes.some((known) => known === type))
  if (unknown !== undefined)
    throw invalid(`eventTypes must be empty or among ${eventTypes.join(', ')}`)
  return [...new Set(types)]
}

const member = <const T extends string>(
  values: readonly T[],
  { field, text }: { readonly field: string; readonly text: string },
): T => {
  const value = values.find((each) => each === text)
  if (value === undefined) throw invalid(`${field} must be ${values.join(' or ')}`)
  return value
}

export const parseSigning = (text: string, fallback: Signing): Signing =>
  text === '' ? fallback : member(signings, { field: 'signing', text })

export const parseStatus = (text: string): EndpointStatus =>
  member(['active', 'disabled'], { field: 'status', text })

export const parseState = (text: string | undefined): DeliveryState | null =>
  text === undefined || text === '' ? null : member(deliveryStates, { field: 'status', text })

const overlapDefault = 86_400
const overlapMax = 7 * 86_400

export function parseOverlap(seconds: number | undefined): number {
  const overlap = seconds ?? overlapDefault
  if (overlap < 0 || overlap > overlapMax)
    throw invalid(`overlapSeconds must be from 0 to ${overlapMax}`)
  return overlap
}

/** Parses an instant or a day; null without one. */
export function parseTime(field: string, text: string | undefined): Date | null {
  if (text === undefined || text === '') return null
  const time = parseInstant(text) ?? parseUtcDay(text)
  if (!time)
    throw invalid(`${field} must be an ISO 8601 instant such as 2026-04-01T00:00:00Z, or a day`)
  return time
}
