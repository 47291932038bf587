import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Account } from '../../../../core/balances/accounts/account.ts'
import { createLedger } from '../../../../core/balances/ledger/ledger.ts'
import { type Db, tx } from '../../../../core/lib/sql.ts'
import { type TestApp, type TestCore, startTestCore } from '../../support.ts'
import { type TestSidecar, moneyOf, startSidecar } from './granting.ts'
import { escrowUser, usd } from './support.ts'

let core: TestCore
let app: TestApp
let sidecar: TestSidecar
let user: Awaited<ReturnType<typeof escrowUser>>
const ledger = createLedger()
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp({ starterUsdMicros: '0' })
  sidecar = await startSidecar(core.as())
  user = await escrowUser(core, app)
})

/** Changes the locked account of ada. Returns what `act` returns. */
const change = <T>(act: (db: Db, account: Account, at: Date) => Promise<T>): Promise<T> =>
  tx(core.sql, async (db) => {
    const at = core.clock.now()
    const [account] = await ledger.lock(db, [user.user], at)
    if (!account) throw new Error('ada has no account')
    const result = await act(db, account, at)
    await ledger.save(db, [account], at)
    return result
  })

const setCeiling = (dollars: number, lacksCard = false) =>
  change((db, account, at) =>
    ledger.setCeiling(db, account, { ceiling: { amount: usd(dollars), lacksCard }, at }),
  )
const collect = (dollars: number) =>
  change((db, account, at) =>
    ledger.collect(db, account, { amount: usd(dollars), causeId: randomUUID(), at }),
  )

let sequence = 0
const reserve = (bound: number) => sidecar.reserve(app, 'ada', { bound, sequence: sequence++ })
const named = () => ({ clientId: app.clientId, externalUserId: 'ada' })
const allowance = async () => (await core.as(app.basic).getAllowance(named())).allowance

describe('a credit line', () => {
  it('pays for calls up to the ceiling, and no further', async () => {
    expect(await reserve(0.5)).toMatchObject({ refusal: 'insufficient_balance' })
    await setCeiling(2)
    expect(await reserve(1.5)).toMatchObject({ refusal: '', remainingUsdAttos: '0' })
    expect(await reserve(0.6)).toMatchObject({ refusal: 'debt_ceiling_reached' })
    expect(await reserve(0.5)).toMatchObject({ refusal: '' })
    expect(await moneyOf(core, app, 'ada')).toEqual({ balance: 0, lent: 0, pending: 2 })
  })

  it('is lent to sidecars like a balance', async () => {
    await setCeiling(8)
    const { lease, canSpend, spendRefusal } = await sidecar.lend(app, 'ada', {
      boundUsdAttos: String(usd(1)),
    })
    expect(BigInt(lease?.amountUsdAttos ?? 0)).toBe(usd(2))
    expect([canSpend, spendRefusal]).toEqual([true, ''])
  })

  it('shrinks with debt and grows with payments, which are entries', async () => {
    await setCeiling(2)
    await user.authorise({ sequence: 1, ms: 0, bound: 1.5 })
    await user.book({ sequence: 1, ms: 0, cost: 1.5 })
    expect(await reserve(0.6)).toMatchObject({ refusal: 'debt_ceiling_reached' })
    await collect(1)
    expect(await reserve(1.4)).toMatchObject({ refusal: '' })
    const { rows } = await core.sql.query(
      `select kind, amount_attos, collected_attos from ledger_entries where user_id = $1 order by seq`,
      [user.user.userId],
    )
    expect(rows).toEqual([
      { kind: 'charge', amount_attos: '0', collected_attos: '0' },
      { kind: 'payment', amount_attos: '0', collected_attos: String(usd(1)) },
    ])
  })

  it('recalls leases when the card is lost, and names the reason', async () => {
    await setCeiling(8)
    await sidecar.lend(app, 'ada', { boundUsdAttos: String(usd(1)) })
    expect(await setCeiling(0, true)).toBe(true)
    const { recalled } = await sidecar.heartbeat()
    expect(recalled).toEqual([user.user.userId])
    expect(await reserve(0.5)).toMatchObject({ refusal: 'no_payment_method' })
    expect(await allowance()).toMatchObject({ canSpend: false, spendRefusal: 'no_payment_method' })
  })

  it('does not count as remaining money, but lets the user spend', async () => {
    await setCeiling(2)
    expect(await allowance()).toMatchObject({
      balanceUsdMicros: '0',
      remainingUsdMicros: '0',
      hasAccess: false,
      canSpend: true,
      spendRefusal: '',
    })
    const strict = await core.startAnother({ ENFORCE_ALLOWANCE_ON_EXCHANGE: 'true' })
    const { balance } = await strict.as(app.basic).getBalance(named())
    expect(balance).toMatchObject({ hasAccess: false, canSpend: true })
  })

  it('of two callers is used once', async () => {
    await setCeiling(2)
    const answers = await Promise.all([1, 2, 3, 4].map(() => reserve(0.6)))
    const refusals = answers.map(({ refusal }) => refusal).sort()
    expect(refusals).toEqual(['', '', '', 'debt_ceiling_reached'])
  })
})
