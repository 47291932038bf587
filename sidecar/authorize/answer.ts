import type { PriceCeiling } from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type { VerifiedIdentity } from '../identity/bound-identity.ts'
import type { Session } from '../signer-state/session.ts'

/** The operator's price ceilings in wei by session type, as canonical digits. */
export type PriceCeilings = Readonly<Record<string, string | undefined>>

const priceUnits: Readonly<Record<string, string>> = {
  live: 'seconds',
  lv2v: '720p-pixel-seconds',
  fixed: 'fixed',
}

/** The highest price that the signer may accept, in wei per unit. */
export interface MaxPrice {
  /** Up to 30 digits, which a number cannot hold. */
  readonly price: string
  readonly unit: string
}

/** Renders the answer that allows a call until `expiry`. */
export function renderAnswer(
  { issuer, clientId, externalUserId }: VerifiedIdentity,
  expiry: number,
  maxPrice: MaxPrice | null,
): string {
  const answer = JSON.stringify({
    status: 200,
    auth_id: `${clientId}:${externalUserId}`,
    externalUserId,
    expiry,
    identity: {
      issuer,
      client_id: clientId,
      usage_subject: externalUserId,
      usage_subject_type: 'external_user_id',
    },
  })
  if (maxPrice === null) return answer
  const { price, unit } = maxPrice
  return `${answer.slice(0, -1)},"maxPrice":{"price":${price},"currency":"wei","unit":"${unit}"}}`
}

/**
 * Returns the lowest of the operator's ceiling and the user's ceilings for a session; null without
 * one. The unit must match the session type, otherwise every call fails (docs/signer-answers.md).
 */
export function findMaxPrice(
  { type, app }: Session,
  operators: PriceCeilings,
  users: readonly PriceCeiling[],
): MaxPrice | null {
  const unit = priceUnits[type]
  if (unit === undefined) return null
  const prices = users
    .filter((user) => user.type === type && (user.app === '' || user.app === app))
    .map(({ maxWei }) => maxWei)
  const [price] = [operators[type] ?? '', ...prices]
    .filter((text) => canonical.test(text))
    .toSorted(compareDigits)
  return price === undefined ? null : { price, unit }
}

const canonical = /^[1-9][0-9]{0,29}$/

const compareDigits = (one: string, other: string): number =>
  one.length - other.length || (one < other ? -1 : 1)
