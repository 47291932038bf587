import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { asRecord } from '../gateway/support.ts'
import { blocksOf, startApart, startMs } from './apart-support.ts'

/** Runs the unchanged example of docs/plans.md in one shell, in the folder of a running service. */
let apart: Awaited<ReturnType<typeof startApart>>
let outputs: string[]
beforeAll(async () => {
  apart = await startApart()
  const blocks = await blocksOf('docs/plans.md', 'Sell, step by step')
  await apart.runUntil('ADMIN_PORT=$CORE_ADMIN_PORT npx tollgate start', ['Ctrl-C stops it'])
  const script = ['set +e', ...blocks.map((block) => `${block}\necho "== end"`)].join('\n')
  const text = await apart.run(script)
  outputs = text.split('== end\n')
}, 2 * startMs)
afterAll(() => apart.stop())

/** Returns the JSON documents of a block, each printed on a separate line. */
const answersOf = (block: number): Record<string, unknown>[] =>
  (outputs[block] ?? '')
    .split('\n')
    .flatMap((line) => (line.startsWith('{') ? [asRecord(JSON.parse(line))] : []))

describe('the example of selling', () => {
  it('only fails to delete a plan with a user', () => {
    const text = outputs.join('')
    expect(text).not.toMatch(/^tollgate: |command not found|SyntaxError/m)
    expect(text.match(/\/problems\//g)).toHaveLength(1)
    expect(answersOf(5)).toMatchObject([
      { success: true },
      { code: 'conflict', activeSubscribers: 1 },
    ])
  })

  it("shows the plan's prices, and the user on it", () => {
    expect(answersOf(1)[0]).toMatchObject({
      products: [
        { name: 'Starter' },
        { name: 'Network Price' },
        {
          name: 'Pro',
          defaultRetailRateUsd: '0.0000015',
          capabilities: [{ pipeline: 'live', effectiveRetailRateUsd: '0.000002' }],
        },
      ],
    })
    expect(outputs[2]).toContain('"Pro"')
  })

  it('charges the user the retail price and the owner the network price', () => {
    const [used, balance, billing] = answersOf(4)
    const totals = asRecord(used?.['totals'])
    const network = BigInt(String(totals['networkFeeUsdMicros']))
    expect(network).toBeGreaterThan(0n)
    // Each figure is rounded up once.
    const paid = BigInt(String(totals['endUserBillableUsdMicros']))
    expect([2n * network, 2n * network - 1n]).toContain(paid)
    expect(2_000_000n - BigInt(String(balance?.['balanceUsdMicros']))).toBe(paid)
    const usage = asRecord(asRecord(billing?.['cycle'])['usage'])
    expect(usage).toMatchObject({
      networkFeeUsdMicros: String(network),
      ownerChargeUsdMicros: String(network),
    })
  })
})
