import { describe, expect, it } from 'vitest'
import { newAccount } from '../../../../core/balances/accounts/account.ts'
import { watchCrossings } from '../../../../core/balances/accounts/crossings.ts'
import type { Credit } from '../../../../core/balances/accounts/credits.ts'
import { usdAttos } from '../../../../core/lib/money.ts'
import type { AppEvent } from '../../../../core/shared/events.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'

const at = new Date('2026-03-10T12:00:00Z')
const dollars = (amount: number) => usdAttos(BigInt(Math.round(amount * 1_000)) * 10n ** 15n)

const credit = (amount: number, more: Partial<Credit> = {}): Credit => ({
  id: 'c',
  kind: 'included',
  source: 'trial',
  featureKey: null,
  amount: dollars(amount),
  remaining: dollars(amount),
  priority: 10,
  effectiveAt: at,
  expiresAt: null,
  expiredAt: null,
  createdAt: at,
  state: 'stored',
  ...more,
})

/** Locks an account with `credits`, applies each change, and returns the events of each save. */
async function eventsOf(
  credits: Credit[],
  ...changes: ((credits: Credit[]) => void)[]
): Promise<AppEvent[][]> {
  const saves: AppEvent[][] = []
  const db = { query: () => Promise.reject(new Error('no database')) } as never
  const account = { ...newAccount({ appId: appId('a'), userId: userId('u'), credits }), seq: 1n }
  const memory: Parameters<typeof watchCrossings>[0] = {
    lockAccounts: async () => [account],
    saveAccounts: async () => {},
  }
  const store = watchCrossings(memory, async (_, events) => void saves.at(-1)?.push(...events))
  await store.lockAccounts(db, [account])
  for (const change of changes) {
    saves.push([])
    change(account.credits)
    await store.saveAccounts(db, [account], at)
  }
  return saves
}

const leave = (amount: number) => (credits: Credit[]) => {
  const [first] = credits
  if (first) first.remaining = dollars(amount)
}
const typesOf = (saves: AppEvent[][]): string[][] =>
  saves.map((events) => events.map(({ type }) => type))

describe('balance.low', () => {
  it('is emitted once, when the balance falls below a fifth of the included usage', async () => {
    const saves = await eventsOf([credit(10)], leave(2), leave(1.999), leave(1), leave(0.1))
    expect(typesOf(saves)).toEqual([[], ['balance.low'], [], []])
    expect(saves[1]?.[0]).toEqual({
      appId: 'a',
      userId: 'u',
      type: 'balance.low',
      at,
      data: { balanceUsdMicros: '1999000', thresholdUsdMicros: '2000000' },
    })
  })

  it('has a threshold of at least half a dollar', async () => {
    const saves = await eventsOf([credit(1)], leave(0.5), leave(0.499))
    expect(typesOf(saves)).toEqual([[], ['balance.low']])
  })

  it('is emitted again after the balance has recovered', async () => {
    const saves = await eventsOf([credit(10)], leave(1), leave(9), leave(1))
    expect(typesOf(saves)).toEqual([['balance.low'], [], ['balance.low']])
  })
})

describe('balance.depleted, access.lost and access.restored', () => {
  it('are emitted when the last money goes and when money returns', async () => {
    const saves = await eventsOf([credit(10)], leave(0), leave(0), leave(3))
    expect(typesOf(saves)).toEqual([['balance.depleted', 'access.lost'], [], ['access.restored']])
  })

  it('count neither expired credits nor those of one feature', async () => {
    const saves = await eventsOf(
      [credit(5, { kind: 'grant' }), credit(7, { featureKey: 'live' })],
      (credits) => {
        for (const each of credits) if (each.kind === 'grant') each.expiredAt = at
      },
    )
    expect(typesOf(saves)).toEqual([['balance.depleted', 'access.lost']])
  })
})
