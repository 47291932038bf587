import { formatDecimal18 } from '../../lib/money.ts'
import { hashLeaf } from './merkle.ts'

/** A ticket as the daily tree has it: what was fixed when it was booked (docs/receipts.md, "Leaf"). Pure. */

/** The members of a leaf in their order, which is part of the format. */
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

/** All texts; `termsId` is null for a ticket that names no version of a plan. Instants are UTC with microseconds. */
export type Leaf = Readonly<Record<Exclude<(typeof leafMembers)[number], 'termsId'>, string>> & {
  readonly termsId: string | null
}

const version = 'tollgate-ticket-1'

/** The bytes that are hashed: a JSON array of the version and the members, without blanks. */
export const leafText = (leaf: Leaf): string =>
  JSON.stringify([version, ...leafMembers.map((member) => leaf[member])])

/** The hash of a ticket in the tree of its day. */
export const hashOfLeaf = (leaf: Leaf): Buffer => hashLeaf(leafText(leaf))

/** Atto-dollars as a decimal. */
export const decimalOf = (attos: string): string => formatDecimal18(BigInt(attos))
