import { type Books, type GrantTerms, authIdOf, remainders } from './books.ts'
import type { TestApp } from './deployment.ts'
import type { Subject } from './events.ts'

/** What an account must have come to. Amounts in atto-dollars. */
export interface AccountBook {
  readonly granted: bigint
  readonly consumed: bigint
  readonly overage: bigint
  readonly balance: bigint
  /** What remains of each grant, in burn order. */
  readonly left: readonly bigint[]
}

const sumOf = (values: readonly bigint[]): bigint => values.reduce((sum, value) => sum + value, 0n)

/** Grants through the REST API, and remembers what was granted. */
export function createAllowances(apps: readonly TestApp[]) {
  const granted = new Map<string, GrantTerms[]>()

  function appOf({ clientId }: Subject): TestApp {
    const app = apps.find((one) => one.clientId === clientId)
    if (!app) throw new Error(`no app ${clientId}`)
    return app
  }

  async function provision(subject: Subject): Promise<void> {
    const { clientId, externalUserId } = subject
    await appOf(subject).call('POST', `/api/v1/apps/${clientId}/users`, {
      json: { externalUserId },
    })
  }

  async function grant(subject: Subject, terms: GrantTerms): Promise<void> {
    const before = granted.get(authIdOf(subject)) ?? []
    granted.set(authIdOf(subject), [...before, terms])
    const path = `/api/v1/apps/${subject.clientId}/users/${encodeURIComponent(subject.externalUserId)}/allowances`
    await appOf(subject).call('POST', path, {
      key: encodeURIComponent(`${authIdOf(subject)}-${before.length}`),
      json: {
        amountUsdMicros: String(terms.micros),
        featureKey: terms.featureKey,
        source: 'promo',
      },
    })
  }

  /** The account of a user whose tickets cost what the book says. */
  function accountOf(books: Books, key: string): AccountBook {
    const book = books.users.get(key)
    if (!book) throw new Error(`no book of ${key}`)
    const { starterMicros } = appOf(book.subject)
    const included = starterMicros > 0n ? [{ micros: starterMicros, featureKey: null }] : []
    const terms = [...included, ...(granted.get(key) ?? [])]
    const left = remainders(terms, book.costs)
    const all = sumOf(terms.map(({ micros }) => micros)) * 10n ** 12n
    const balance = sumOf(left)
    return {
      granted: all,
      consumed: book.cost,
      overage: book.cost - (all - balance),
      balance,
      left,
    }
  }

  /** Users that exist: they signed, or were granted something. */
  const known = (books: Books): string[] =>
    [...books.users]
      .filter(([key, { count }]) => count > 0n || granted.has(key))
      .map(([key]) => key)

  return { appOf, provision, grant, accountOf, known, favoured: () => [...granted.keys()] }
}

export type Allowances = ReturnType<typeof createAllowances>
