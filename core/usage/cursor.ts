import { DomainError } from '../../proto/errors.ts'
import type { SealedPlace, Sealing } from '../shared/sealing/sealing.ts'

const lengthMax = 4_096

/**
 * Cursors for the position in a list or a stream. A cursor is sealed, so that a caller cannot forge
 * one, and bound to `context`, so that it is valid for that list only.
 */
export function createCursors({ seal, unseal }: Sealing) {
  const format = (parts: readonly string[], context: string): string =>
    seal(Buffer.from(JSON.stringify(parts)), placeOf(context)).toString('base64url')

  /** Returns null without a cursor. Throws REQUEST_INVALID for a cursor from another context. */
  function parse(text: string | undefined, context: string): string[] | null {
    if (text === undefined || text === '') return null
    try {
      if (text.length > lengthMax) throw new Error('too long')
      const parts: unknown = JSON.parse(
        unseal(Buffer.from(text, 'base64url'), placeOf(context)).toString('utf8'),
      )
      if (!Array.isArray(parts)) throw new Error('no list')
      return parts.map(String)
    } catch (error) {
      throw new DomainError('REQUEST_INVALID', 'the cursor is not one that was returned here', {
        cause: error,
      })
    }
  }

  return { format, parse }
}

const placeOf = (context: string): SealedPlace => ({
  purpose: 'cursor',
  context: `usage-cursor:${context}`,
})

export type Cursors = ReturnType<typeof createCursors>
