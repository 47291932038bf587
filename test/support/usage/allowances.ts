import { type Books, type GrantTerms, authIdOf, remainders } from './books.ts'
import type { TestApp } from '../deployment/deployment.ts'
import type { Subject } from './events.ts'

/** The expected figures of an account, in atto-dollars. */
export interface AccountBook {
  readonly granted: bigint
  readonly consumed: bigint
  readonly overage: bigint
  readonly balance: bigint
  /** Remainder of each grant, in burn order. */
  readonly left: readonly bigint[]
}

const sumOf = (values: readonly bigint[]): bigint => values.reduce((sum, value) => sum + value, 0n)

/** Creates grants through the REST API and remembers them. */
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

  /** Returns the expected account of a user, from the book's costs and the grants. */
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

  /** Returns the users that core has created: those with a ticket or a grant. */
  const known = (books: Books): string[] =>
    [...books.users]
      .filter(([key, { count }]) => count > 0n || granted.has(key))
      .map(([key]) => key)

  return { appOf, provision, grant, accountOf, known, favoured: () => [...granted.keys()] }
}

export type Allowances = ReturnType<typeof createAllowances>
