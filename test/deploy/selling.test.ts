import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { asRecord } from '../gateway/support.ts'
import { blocksOf, startApart, startMs } from './apart-support.ts'

/** The example of docs/plans.md, as it stands: in one shell, in the folder of a service that runs. */
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

/** The JSON documents of a block, each on a line of its own. */
const answersOf = (block: number): Record<string, unknown>[] =>
  (outputs[block] ?? '')
    .split('\n')
    .flatMap((line) => (line.startsWith('{') ? [asRecord(JSON.parse(line))] : []))

describe('the example of selling', () => {
  it('is refused nothing but the deletion of a plan with a user', () => {
    const text = outputs.join('')
    expect(text).not.toMatch(/^tollgate: |command not found|SyntaxError/m)
    expect(text.match(/\/problems\//g)).toHaveLength(1)
    expect(answersOf(5)).toMatchObject([
      { success: true },
      { code: 'conflict', activeSubscribers: 1 },
    ])
  })

  it('shows what the plan sells at, and the user on it', () => {
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

  it('charges the user retail and the owner the price of the network', () => {
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
