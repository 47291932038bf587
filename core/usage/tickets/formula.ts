import { formatDecimal18, formatEth } from '../../lib/money.ts'
import type { ExplainedSale, Explanation } from './explain.ts'

/**
 * Returns the price of a ticket as calculations that a pocket calculator can repeat, one line per
 * figure.
 */
export function toFormula({ fee, sale }: Explanation): string[] {
  const eth = formatEth(fee)
  if (!sale) return [`fee = ${fee} wei = ${eth} ETH, which waits for a rate`]
  const { rate, cost, retail, platformFee, charge } = sale
  const usd = `${eth} ETH × ${decimal(rate.usdAttosPerEth)} USD/ETH`
  return [
    `fee = ${fee} wei = ${eth} ETH`,
    `network cost = ${usd} = ${decimal(cost)} USD`,
    retailLine(sale, usd),
    cutLine(sale, usd),
    `owner charge = ${decimal(cost)} + ${decimal(platformFee)} = ${decimal(cost + platformFee)} USD`,
    ...(charge?.share
      ? [
          `burned = ${decimal(retail)} retail - ${decimal(charge.share.overage)} overage = ${decimal(retail - charge.share.overage)} USD`,
        ]
      : []),
    'each figure is rounded down once, to 18 decimals, from the exact product',
  ]
}

const decimal = formatDecimal18

function retailLine({ retail, rule }: ExplainedSale, usd: string): string {
  if (rule === null) return `retail = ${decimal(retail)} USD, as it was fixed before plan versions`
  return `retail = ${usd} × ${decimal(rule.ratio)} (${rule.name}) = ${decimal(retail)} USD`
}

const cutLine = ({ cut, platformFee }: ExplainedSale, usd: string): string =>
  cut === null
    ? `platform fee = ${decimal(platformFee)} USD, no cut is configured`
    : `platform fee = ${usd} × ${decimal(cut.percent)} % = ${decimal(platformFee)} USD`
