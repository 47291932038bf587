import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { type ProcessorAccount, usdCents } from '../../../core/billing/processor/port.ts'
import {
  claimPlaces,
  comparedThrough,
} from '../../../core/billing/reconciliation/progress-store.ts'
import type { ReconcileProcessorResponse } from '../../../proto/gen/ts-proto/tollgate/billing/v1/reconciliation.ts'
import { until } from '../support.ts'
import {
  charge,
  core,
  findNew,
  hourMs,
  listOpen,
  loseReturns,
  metric,
  newMerchant,
  openOwn,
  operator,
  pay,
  platform,
  processor,
  reconcile,
  record,
  recordReturn,
  setUpReconciliation,
  stripe,
  surplus,
} from './reconciliation-world.ts'

setUpReconciliation()

describe('reconcile with the processor', () => {
  it('finds no difference where both sides agree, and sums every kind of movement', async () => {
    const merchant = await newMerchant()
    await pay(merchant)
    const id = await charge(merchant, { amount: 2_000n, fee: 300n })
    const paymentId = await record(merchant, id, { amount: 2_000n, fee: 300n })
    stripe.refundPayment(merchant.at, id, 700)
    await recordReturn(merchant, { paymentId, kind: 'refund', amount: 700n })
    stripe.payOut(merchant.at, { amount: 900 })
    core.clock.advance(2 * hourMs)
    const accounts = await reconcile()
    expect(accounts.flatMap(({ differences }) => differences)).toEqual([])
    const own = accounts.find(({ account }) => account === merchant.at.account)
    expect(own).toMatchObject({ plane: 'live', clientId: merchant.clientId })
    expect(own?.sums).toEqual([
      { kind: 'payment', currency: 'usd', count: 2, amount: '2500' },
      { kind: 'payout', currency: 'usd', count: 1, amount: '-900' },
      { kind: 'refund', currency: 'usd', count: 1, amount: '-700' },
    ])
    const ours = accounts.find(({ account, plane }) => account === undefined && plane === 'live')
    expect(ours?.sums).toEqual([{ kind: 'fee', currency: 'usd', count: 1, amount: '300' }])
  })

  it('waits an hour before it compares a movement', async () => {
    const merchant = await newMerchant()
    await charge(merchant)
    core.clock.advance(hourMs / 2)
    await reconcile()
    expect(await listOpen()).toEqual([])
    expect(await findNew()).toHaveLength(1)
  })

  it('compares the last hour when asked to, and again later', async () => {
    const merchant = await newMerchant()
    await charge(merchant)
    const own = (accounts: readonly ReconcileProcessorResponse[]) =>
      accounts.find(({ account }) => account === merchant.at.account)
    core.clock.advance(1_000)
    const recent = own(await reconcile({ recent: true }))
    expect(recent?.sums).toMatchObject([{ kind: 'payment', count: 1 }])
    expect(recent?.differences).toHaveLength(1)
    core.clock.advance(2 * hourMs)
    expect(own(await reconcile())).toMatchObject({
      sums: [{ kind: 'payment', count: 1 }],
      differences: [],
    })
    expect(await listOpen()).toHaveLength(1)
  })

  it('finds a payment that is missing on our side, and closes it when it is recorded', async () => {
    const merchant = await newMerchant()
    const id = await charge(merchant, { amount: 1_234n })
    expect(await findNew()).toMatchObject([
      {
        subject: 'payment',
        problem: 'missing_here',
        clientId: merchant.clientId,
        account: merchant.at.account,
        processorPaymentId: id,
        ours: undefined,
        theirs: '1234',
      },
    ])
    expect(await metric('tollgate_billing_processor_differences{')).toContain(
      'subject="payment",process="core"} 1',
    )
    await record(merchant, id, { amount: 1_234n })
    expect(await findNew()).toEqual([])
    expect(await listOpen()).toEqual([])
    const { differences } = await operator.processorReconciliation.listProcessorDifferences({
      open: false,
      limit: 1,
      cursor: undefined,
    })
    expect(differences).toMatchObject([
      { resolution: 'both sides agree now', resolvedBy: undefined },
    ])
  })

  it('ignores sales of the account that are not ours', async () => {
    const merchant = await newMerchant()
    const other = await newMerchant()
    await charge(merchant, { reference: 'order 17' })
    await charge(merchant, { reference: `${other.appId}/${randomUUID()}` })
    await charge(merchant, { reference: `${randomUUID()}/${randomUUID()}` })
    const foreign = await charge(merchant, { reference: '-'.repeat(36) + '/' + '-'.repeat(36) })
    stripe.refundPayment(merchant.at, foreign, 100)
    expect(await findNew()).toEqual([])
  })

  it('finds a payment that is missing at the processor', async () => {
    const merchant = await newMerchant()
    const paymentId = await record(merchant, 'pi_invented')
    expect(await findNew()).toMatchObject([
      { subject: 'payment', problem: 'missing_there', paymentId, ours: '500', theirs: undefined },
    ])
  })

  it('finds another amount, another currency and another fee', async () => {
    const merchant = await newMerchant()
    await record(merchant, await charge(merchant, { amount: 600n }), { amount: 500n })
    const converted = await pay(merchant)
    for (const kind of ['charge', 'payment_intent'] as const)
      for (const object of stripe.world(merchant.at).list(kind))
        if (
          object.id === converted ||
          ('payment_intent' in object && object.payment_intent === converted)
        )
          Object.assign(object, { currency: 'eur' })
    await record(merchant, await charge(merchant, { fee: 20n }), { fee: 30n })
    await record(merchant, await charge(merchant, { fee: 20n }))
    const found = await findNew()
    expect(
      found
        .map(({ subject, problem, ours, theirs, currency }) =>
          [subject, problem, ours, theirs, currency].join(' '),
        )
        .toSorted(),
    ).toEqual([
      'fee amount 30 20 usd',
      'fee missing_here  20 usd',
      'payment amount 500 600 usd',
      'payment currency 500 500 eur',
    ])
  })

  it("finds a platform fee that did not arrive in the platform's account", async () => {
    const merchant = await newMerchant()
    await pay(merchant, { fee: 20n })
    const lost = await pay(merchant, { fee: 40n })
    const charges = [...stripe.world(merchant.at).list('charge')]
    const lostCharge = charges.find(({ payment_intent }) => payment_intent === lost)?.id
    for (const fee of stripe.world(platform).list('application_fee'))
      if (fee.charge === lostCharge) Object.assign(fee, { charge: 'ch_other' })
    expect(await findNew()).toMatchObject([
      { subject: 'earning', problem: 'missing_there', processorPaymentId: lost, ours: '40' },
    ])
  })

  it('finds refunds and disputes that cannot be booked, and books them when they can be', async () => {
    const merchant = await newMerchant()
    await loseReturns(merchant)
    core.clock.advance(2 * hourMs)
    const failing = openOwn(processor, () => Promise.reject(new Error('the ledger is locked')))
    expect(
      (await failing.compare())
        .flatMap(({ newDifferences }) => newDifferences)
        .map(({ subject, problem, ours, theirs }) => [subject, problem, ours, theirs].join(' '))
        .toSorted(),
    ).toEqual([
      'dispute missing_here  500',
      'refund missing_here  100',
      'refund missing_there 250 ',
    ])
    expect(await findNew()).toEqual([])
    expect(await listOpen()).toEqual([])
    const { rows } = await core.sql.query<{ of: string }>(
      `select kind || ' ' || amount_cents as of from payment_returns
       where user_id = $1 and booked_at is not null order by of`,
      [merchant.userId],
    )
    expect(rows.map((row) => row.of)).toEqual([
      'dispute 500',
      'refund 100',
      'refund 250',
      'refund_failed 250',
    ])
  })

  it('books a refund of a payment whose own movement it has not listed', async () => {
    const merchant = await newMerchant()
    const id = await charge(merchant)
    // The comparison begins after the payment.
    core.clock.advance(2 * hourMs)
    expect(await findNew()).toMatchObject([{ processorPaymentId: id }])
    const paymentId = await record(merchant, id)
    await core.sql.query('truncate processor_movements')
    stripe.refundPayment(merchant.at, id, 100)
    expect(await findNew()).toEqual([])
    const { rows } = await core.sql.query(
      'select kind, amount_cents::int as cents from payment_returns where payment_id = $1',
      [paymentId],
    )
    expect(rows).toEqual([{ kind: 'refund', cents: 100 }])
  })

  it('finds a fee that the platform keeps of a surplus, until it is returned', async () => {
    const merchant = await newMerchant()
    const [kept, returned] = [await surplus(merchant), await surplus(merchant)]
    const refund = { amount: usdCents(500n), reference: 'surplus' }
    await processor.refund(merchant.at, { ...refund, payment: kept }, randomUUID())
    const whole = { ...refund, payment: returned, returnsFee: true }
    await processor.refund(merchant.at, whole, randomUUID())
    expect(await findNew()).toMatchObject([
      { subject: 'fee', problem: 'missing_here', processorPaymentId: kept, theirs: '40' },
    ])
    stripe.refundFee(merchant.at, kept)
    expect(await findNew()).toEqual([])
    expect(await listOpen()).toEqual([])
  })

  it('finds a fee of a payment that the platform returned', async () => {
    const merchant = await newMerchant()
    const id = await pay(merchant, { fee: 40n })
    stripe.refundFee(merchant.at, id)
    expect(await findNew()).toMatchObject([
      { subject: 'fee', problem: 'missing_there', processorPaymentId: id, ours: '40' },
    ])
  })

  it('does not count a refund that failed or a dispute that was won', async () => {
    const merchant = await newMerchant()
    const [refunded, disputed] = [await pay(merchant), await pay(merchant)]
    const refund = stripe.refundPayment(merchant.at, refunded, 100)
    stripe.failRefund(merchant.at, refund.id)
    stripe.closeDispute(merchant.at, stripe.dispute(merchant.at, disputed).id, 'won')
    expect(await findNew()).toEqual([])
  })

  it('reports a resolved difference again only with other figures', async () => {
    const merchant = await newMerchant()
    const id = await charge(merchant, { amount: 900n })
    const [found] = await findNew()
    const { processorReconciliation } = operator
    const request = { id: found?.id ?? '', resolution: 'refunded by hand' }
    const { difference } = await processorReconciliation.resolveProcessorDifference(request)
    expect(difference).toMatchObject({ resolution: 'refunded by hand', processorPaymentId: id })
    expect(difference?.resolvedBy).toBeTruthy()
    await expect(processorReconciliation.resolveProcessorDifference(request)).rejects.toMatchObject(
      { reason: 'CONFLICT' },
    )
    await expect(
      processorReconciliation.resolveProcessorDifference({ ...request, id: randomUUID() }),
    ).rejects.toMatchObject({ reason: 'NOT_FOUND' })
    const day = core.clock.now().toISOString().slice(0, 10)
    const again = await reconcile({ from: day, to: day })
    expect(again.flatMap(({ differences }) => differences)).toEqual([])
    await record(merchant, id, { amount: 800n })
    expect(await findNew()).toMatchObject([{ problem: 'amount', ours: '800', theirs: '900' }])
  })

  it('continues after an outage in the middle of many pages', async () => {
    const merchant = await newMerchant()
    for (let i = 0; i < 210; i++) await pay(merchant)
    const missing = await charge(merchant)
    core.clock.advance(2 * hourMs)
    let pages = 0
    stripe.faults = ({ route, account }) =>
      route === '/v1/balance_transactions' && account === merchant.at.account && pages++ > 0
        ? { kind: 'refuse', status: 429 }
        : undefined
    const failed = (await reconcile()).find(({ account }) => account === merchant.at.account)
    expect(failed?.failure).toBeTruthy()
    expect(await listOpen()).toEqual([])
    stripe.faults = () => undefined
    const before = stripe.requests.length
    expect((await reconcile()).flatMap(({ differences }) => differences)).toMatchObject([
      { processorPaymentId: missing },
    ])
    const starts = stripe.requests
      .slice(before)
      .filter(
        ({ route, account }) =>
          route === '/v1/balance_transactions' && account === merchant.at.account,
      )
      .map(({ form }) => form['starting_after'])
    expect(starts[0]).toMatch(/^txn_/)
  }, 60_000)

  it('refuses days that are none, reversed, or more than 92', async () => {
    for (const range of [
      { from: 'yesterday' },
      { from: '2026-03-02', to: '2026-03-01' },
      { from: '2026-01-01', to: '2026-06-01' },
    ])
      await expect(reconcile(range)).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
  })

  it('never changes what it found', async () => {
    for (const change of [
      'update processor_movements set amount = amount + 1',
      'delete from processor_movements',
      'update processor_differences set theirs = 0',
      `update processor_differences set resolution = 'other'`,
      'delete from processor_differences',
    ])
      await expect(core.sql.query(change)).rejects.toThrow(/append-only|rewrit/i)
  })

  it('does not wait for accounts of a plane or processor that is not configured', async () => {
    await newMerchant()
    await findNew()
    const age = 'tollgate_billing_reconciliation_age_seconds'
    const before = await metric(age)
    await core.sql.query(
      `insert into processor_reconciliations (processor, plane, account_id, through, due_at)
       values ('simulated', 'live', '', '2020-01-01', '2020-01-01'), ('stripe', 'test', 'acct_old', '2020-01-01', '2020-01-01')`,
    )
    const live = { kind: 'stripe', planes: ['live'] } as const
    expect(await comparedThrough(core.sql, { ...live, planes: ['live', 'test'] })).toEqual(
      new Date('2020-01-01'),
    )
    expect((await comparedThrough(core.sql, live))?.getTime()).toBeGreaterThan(
      core.clock.now().getTime() - 3 * hourMs,
    )
    const claim = { at: core.clock.now(), until: core.clock.now(), limit: 100 }
    const claimed = await claimPlaces(core.sql, { kind: 'stripe', planes: [] }, claim)
    expect(claimed).toEqual([])
    await core.sql.query(`delete from processor_reconciliations where account_id = 'acct_old'`)
    expect(await metric(age)).toBe(before)
  })

  it('stops between two pages of an account when it is aborted, and continues there', async () => {
    const stopping = new AbortController()
    const asked: (string | null)[] = []
    const endless = {
      ...processor,
      kind: 'simulated' as const,
      planes: ['live'] as const,
      listMovements: async (
        _at: ProcessorAccount,
        { after }: { readonly after: string | null },
      ) => {
        asked.push(after)
        if (asked.length === 3) stopping.abort()
        return { movements: [], after: asked.length < 5 ? `txn_${asked.length}` : null }
      },
    }
    const own = openOwn(endless)
    // A test before leaves one that was compared until 2020: that is thousands of days.
    await core.sql.query(`delete from processor_reconciliations where processor = 'simulated'`)
    await own.insertPlaces()
    core.clock.advance(3 * hourMs)
    expect(await own.compare(stopping.signal)).toEqual([])
    expect(asked).toEqual([null, 'txn_1', 'txn_2'])
    expect(await own.compare()).toHaveLength(1)
    expect(asked.slice(3, 5)).toEqual(['txn_3', 'txn_4'])
  })

  it('runs by itself when an account is due', async () => {
    const merchant = await newMerchant()
    const id = await charge(merchant)
    core.clock.advance(26 * hourMs)
    await core.startAnother(stripe.env)
    await until(async () => (await listOpen()).length > 0)
    expect(await listOpen()).toMatchObject([{ processorPaymentId: id }])
  })
})
