import type { PriceCeiling } from '../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import type { Session } from '../accounts/session.ts'

/** The operator's price ceilings in wei by session type, as canonical digits. */
export type PriceCeilings = Readonly<Record<string, string | undefined>>

const priceUnits: Readonly<Record<string, string>> = {
  live: 'seconds',
  lv2v: '720p-pixel-seconds',
  fixed: 'fixed',
}

/**
 * Returns a function that renders the `maxPrice` member of an answer, with its leading comma: the
 * lowest of the operator's ceiling and the user's ceilings; "" without one. The unit must match the
 * session type, otherwise every call fails (docs/signer-answers.md).
 */
export function createMaxPrice(
  operators: PriceCeilings,
): (session: Session, users: readonly PriceCeiling[]) => string {
  const members = new Map<string, string>()
  for (const [type, price] of Object.entries(operators))
    if (price !== undefined) members.set(type, memberOf(type, price))

  return (session, users) =>
    users.length === 0 ? (members.get(session.type) ?? '') : lowest(session, users)

  function lowest({ type, app }: Session, users: readonly PriceCeiling[]): string {
    const fitting = users.filter(
      (user) => user.type === type && (user.app === '' || user.app === app),
    )
    const prices = [operators[type], ...fitting.map(({ maxWei }) => maxWei)]
    const known = prices.filter(
      (price): price is string => price !== undefined && canonical.test(price),
    )
    if (type === '' || known.length === 0) return ''
    return memberOf(
      type,
      known.reduce((one, other) => (isLower(other, one) ? other : one)),
    )
  }
}

const canonical = /^[1-9][0-9]{0,29}$/

const isLower = (one: string, other: string): boolean =>
  one.length < other.length || (one.length === other.length && one < other)

const memberOf = (type: string, price: string): string =>
  `,"maxPrice":{"price":${price},"currency":"wei","unit":"${priceUnits[type]}"}`
