import { DomainError } from '../../proto/errors.ts'
import { isReadable, unreadableCharacter } from '../lib/text/readable.ts'

/** Trims and returns a name of 1 to `max` readable characters. Throws REQUEST_INVALID otherwise. */
export function parseReadable(
  text: string,
  { field, max = 100 }: { field: string; max?: number },
): string {
  const name = text.trim()
  if (!isReadable(name))
    throw new DomainError(
      'REQUEST_INVALID',
      `${field} contains ${unreadableCharacter(name)}, which is not allowed`,
    )
  if (name !== '' && name.length <= max) return name
  throw new DomainError('REQUEST_INVALID', `${field} must have 1 to ${max} characters`)
}
