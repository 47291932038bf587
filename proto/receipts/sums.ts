import { type JsonObject, isObject } from '../../core/lib/json.ts'

/**
 * Recomputes the sums of a receipt (docs/receipts.md, "Arithmetic"): integers scaled by 10^18, each
 * rounded down once.
 */

export interface Sum {
  readonly name: string
  /** Null if the receipt lacks the figures for the check. */
  readonly isRight: boolean | null
  readonly text: string
}

const scale = 10n ** 18n
const decimal = /^(0|[1-9][0-9]{0,59})(?:\.([0-9]{1,18}))?$/

/** Parses a decimal of at most 18 places as an integer scaled by 10^18. Throws for other values. */
function scaled(value: unknown): bigint {
  const match = typeof value === 'string' ? decimal.exec(value) : null
  if (!match) throw new Error(`${JSON.stringify(value)} is not a decimal`)
  return BigInt(`${match[1]}${(match[2] ?? '').padEnd(18, '0')}`)
}

function integer(value: unknown): bigint {
  if (typeof value !== 'string' || !/^(0|[1-9][0-9]{0,77})$/.test(value))
    throw new Error(`${JSON.stringify(value)} is not a whole number`)
  return BigInt(value)
}

/** Returns the sums of a receipt's claims. Throws for an invalid figure. */
export function computeSums(claims: JsonObject): Sum[] {
  const ticket = isObject(claims['ticket']) ? claims['ticket'] : {}
  const figures: Figures = {
    ticket,
    claims,
    fee: integer(ticket['feeWei']),
    rate: scaled(ticket['usdPerEth']),
    network: scaled(ticket['networkCostUsd']),
    retail: scaled(ticket['retailCostUsd']),
    platformFee: scaled(ticket['platformFeeUsd']),
  }
  return [network(figures), retail(figures), platform(figures), owner(figures), burned(figures)]
}

interface Figures {
  readonly ticket: JsonObject
  readonly claims: JsonObject
  readonly fee: bigint
  readonly rate: bigint
  readonly network: bigint
  readonly retail: bigint
  readonly platformFee: bigint
}

/**
 * Whether the ticket has no version of a plan: priced elsewhere, or earlier, when costs were
 * rounded up.
 */
const isUnversioned = ({ ticket }: Figures): boolean => ticket['termsId'] === null

function network(figures: Figures): Sum {
  const exact = figures.fee * figures.rate
  const expected = exact / scale
  const roundedUp = isUnversioned(figures) && exact % scale > 0n ? expected + 1n : expected
  return {
    name: 'Network cost',
    isRight: figures.network === expected || figures.network === roundedUp,
    text: `${figures.ticket['feeWei']} wei × ${figures.ticket['usdPerEth']} USD/ETH = ${figures.ticket['networkCostUsd']} USD`,
  }
}

function retail(figures: Figures): Sum {
  const { rule } = figures.claims
  const name = 'Price for the user'
  if (!isObject(rule))
    return {
      name,
      isRight: isUnversioned(figures) ? null : false,
      text: `${figures.ticket['retailCostUsd']} USD, fixed without a rule`,
    }
  const expected = (figures.fee * figures.rate * scaled(rule['multiple'])) / scale ** 2n
  return {
    name,
    isRight: figures.retail === expected,
    text: `the same × ${rule['multiple']} (${rule['name']}) = ${figures.ticket['retailCostUsd']} USD`,
  }
}

function platform(figures: Figures): Sum {
  const { cut } = figures.claims
  const name = 'Platform fee'
  const feeWei = integer(figures.ticket['platformFeeWei'])
  if (!isObject(cut))
    return {
      name,
      isRight:
        figures.platformFee === 0n && feeWei === 0n ? true : isUnversioned(figures) ? null : false,
      text: `${figures.ticket['platformFeeUsd']} USD without a cut`,
    }
  const percent = scaled(cut['percent'])
  const expected = (figures.fee * figures.rate * percent) / (scale ** 2n * 100n)
  const expectedWei = (figures.fee * percent) / (scale * 100n)
  return {
    name,
    isRight: figures.platformFee === expected && feeWei === expectedWei,
    text: `${cut['percent']} % of fee and network cost = ${figures.ticket['platformFeeWei']} wei, ${figures.ticket['platformFeeUsd']} USD`,
  }
}

const owner = (figures: Figures): Sum => ({
  name: 'Charge to the owner',
  isRight: scaled(figures.claims['ownerChargeUsd']) === figures.network + figures.platformFee,
  text: `network cost + platform fee = ${String(figures.claims['ownerChargeUsd'])} USD`,
})

function burned({ claims, ticket, retail: due }: Figures): Sum {
  const { charge } = claims
  const share = isObject(charge) ? charge['share'] : null
  const name = 'Credits that paid'
  if (!isObject(share))
    return {
      name,
      isRight: null,
      text: 'the receipt does not list the credits that the ticket burned',
    }
  const draws = Array.isArray(share['draws']) ? share['draws'] : []
  const drawn = draws.reduce(
    (sum: bigint, draw: unknown) => sum + scaled(isObject(draw) ? draw['amountUsd'] : null),
    0n,
  )
  return {
    name,
    isRight: drawn + scaled(share['overageUsd']) === due,
    text: `burned of ${draws.length} credits + ${String(share['overageUsd'])} USD overage = ${String(ticket['retailCostUsd'])} USD retail`,
  }
}
