import { DomainError } from '../../proto/errors.ts'

/**
 * The one rule for text that people or tenants choose and that others read: names, labels, URIs, ids. It has no control
 * characters, no line or paragraph separators, no lone surrogates, and none of the bidirectional controls (UAX #9), which
 * make text read differently from what it is.
 */
const unreadable = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u
const unreadableRuns = new RegExp(`${unreadable.source}+`, 'gu')

/** Whether text has none of the characters that make it unreadable or read as something else. */
export const isReadable = (text: string): boolean => !unreadable.test(text)

/** The text with a blank in place of what `isReadable` refuses, for text that is no reason to refuse anything. */
export const toReadable = (text: string): string => text.replace(unreadableRuns, ' ')

/** What `isReadable` refuses, as the end of a sentence. */
export const unreadableKinds = 'no control or bidirectional formatting character'

/** A name of 1 to `max` characters after trimming. REQUEST_INVALID otherwise. */
export function parseReadable(
  text: string,
  { field, max = 100 }: { field: string; max?: number },
): string {
  const name = text.trim()
  if (name !== '' && name.length <= max && isReadable(name)) return name
  throw new DomainError(
    'REQUEST_INVALID',
    `${field} must have 1 to ${max} characters, and ${unreadableKinds}`,
  )
}
