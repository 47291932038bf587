import { type Leaf, leafText } from '../../../proto/receipts/leaf.ts'
import { formatDecimal18 } from '../../lib/money.ts'
import { hashLeaf } from './merkle.ts'

export type { Leaf } from '../../../proto/receipts/leaf.ts'

/** Hash of a ticket in the tree of its day. */
export const hashOfLeaf = (leaf: Leaf): Buffer => hashLeaf(leafText(leaf))

/** Converts atto-dollars to a decimal. */
export const toDecimal = (attos: string): string => formatDecimal18(BigInt(attos))
