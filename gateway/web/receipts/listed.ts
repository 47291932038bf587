import { isObject } from '../../../core/lib/json.ts'
import type { Check, TrustedRoots } from '../../../proto/receipts/check.ts'

/**
 * Returns the root that the service lists for an app's day; null if it lists none. Rejects with the
 * `status` of a refusal.
 */
export type FindRoot = (clientId: string, day: string) => Promise<string | null>

/** Checks that the service shows everybody the same root of the day. */
export const compareListed =
  (findRoot: FindRoot): TrustedRoots['compare'] =>
  async (root, day) => {
    const check = (result: Omit<Check, 'name'>): Check[] => [
      { name: 'Root that the service lists', ...result },
    ]
    let listed: string | null
    try {
      listed = await findRoot(String(day['clientId']), String(day['day']))
    } catch (error) {
      if (!isHidden(error)) {
        const text = `The list could not be read: ${error instanceof Error ? error.message : String(error)}`
        return check({ isRight: null, isNeeded: true, text })
      }
      listed = null
    }
    if (listed === null)
      return check({
        isRight: null,
        text: 'The service lists no root of this app and day to you.',
      })
    const isRight = listed === root
    const text = `The service lists ${isRight ? 'the same' : 'another'} root for this day.`
    return check({ isRight, text })
  }

// Roots of other apps are refused like those of unknown ones.
const isHidden = (error: unknown): boolean =>
  isObject(error) && (error['status'] === 403 || error['status'] === 404)
