import { describe, expect, it } from 'vitest'
import {
  formatAttos,
  formatExactAttos,
  formatExactWei,
  formatWei,
} from '../../../gateway/web/ui/long-amounts.ts'

describe('amounts of eighteen digits', () => {
  it.each([
    ['0', '0 ETH', '0 ETH (0 wei)'],
    ['33', '33 wei', '0.000000000000000033 ETH (33 wei)'],
    ['1500000000', '1.5 gwei', '0.0000000015 ETH (1,500,000,000 wei)'],
    ['250000000000000', '0.00025 ETH', '0.00025 ETH (250,000,000,000,000 wei)'],
    [
      '1234000000500000000000',
      '1,234.000001 ETH',
      '1,234.0000005 ETH (1,234,000,000,500,000,000,000 wei)',
    ],
  ])('shows %s wei as %s', (wei, text, exact) => {
    expect([formatWei(wei), formatExactWei(wei)]).toEqual([text, exact])
  })

  it.each([
    ['1', '$0.00', '0.000000000000000001 USD'],
    ['1230000000000000000', '$1.23', '1.23 USD'],
    ['-2500000000000000000', '-$2.50', '-2.5 USD'],
  ])('shows %s atto-dollars as %s', (attos, text, exact) => {
    expect([formatAttos(attos), formatExactAttos(attos)]).toEqual([text, exact])
  })
})
