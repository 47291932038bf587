/**
 * A ticket as a leaf of the daily tree: the values fixed when it was booked (docs/receipts.md,
 * "Leaf"). Pure.
 */

/** The members of a leaf. Their order is part of the format. */
export const leafMembers = [
  'clientId',
  'eventId',
  'endUserId',
  'sessionId',
  'sequenceNumber',
  'gatewayRequestId',
  'manifestId',
  'pipeline',
  'modelId',
  'signedAt',
  'receivedAt',
  'feeWei',
  'rateSource',
  'rateObservedAt',
  'usdPerEth',
  'networkCostUsd',
  'termsId',
  'retailCostUsd',
  'platformFeeUsd',
  'platformFeeWei',
  'chargeId',
] as const

/**
 * All members are text; `termsId` is null for a ticket without a plan version. Instants are UTC
 * with microseconds.
 */
export type Leaf = Readonly<Record<Exclude<(typeof leafMembers)[number], 'termsId'>, string>> & {
  readonly termsId: string | null
}

const version = 'tollgate-ticket-1'

/** The hashed bytes: a JSON array of the version and the members, without blanks. */
export const leafText = (leaf: Leaf): string =>
  JSON.stringify([version, ...leafMembers.map((member) => leaf[member])])

/** Returns the ticket of a receipt as a leaf, or null if a member is missing. */
export function toLeaf(ticket: unknown): Leaf | null {
  if (typeof ticket !== 'object' || ticket === null) return null
  const members: Readonly<Record<string, unknown>> = { ...ticket }
  const isText = (name: string): boolean =>
    typeof members[name] === 'string' || (name === 'termsId' && members[name] === null)
  return leafMembers.every(isText) ? (members as Leaf) : null
}
