import { expect, it, onTestFinished } from 'vitest'
import { connectCore } from '../../../../deploy/cli/client.ts'
import { serviceToken } from '../../../core/support.ts'
import { createBrowser } from '../../pages/support.ts'
import { createSimulatedProcessor } from '../../../../core/billing/processor/simulated/simulated.ts'
import { silentLog } from '../../../../core/lib/log.ts'
import { type Real, newSellingApp, password, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

const pathOf = (url: unknown): string => {
  const { pathname, search } = new URL(String(url), 'https://svc.example')
  return pathname + search
}

const customersOf = async ({ core }: Real) =>
  (
    await core.sql.query<{ id: string; account: string }>(
      'select customer_id as id, account_id as account from processor_customers',
    )
  ).rows

/** Deletes the only customer at the simulated processor; the event of it is lost. */
async function deleteCustomer(real: Real) {
  const [customer] = await customersOf(real)
  if (!customer) throw new Error('there is no customer')
  const { pages } = createSimulatedProcessor({
    pool: real.core.sql,
    now: () => new Date(),
    log: silentLog(),
    publicUrl: real.url,
    receive: async () => {},
  })
  await pages.customers.remove({ plane: 'live', account: customer.account }, customer.id)
  return customer
}

it('leads from a connected account to a top-up that the user can spend', async () => {
  const real = await startReal({ PAYMENT_PROCESSOR: 'simulated' })
  onTestFinished(real.stop)
  const operator = connectCore({
    target: real.core.core.target,
    token: serviceToken,
    tls: undefined,
  })
  const app = await newSellingApp({ real, operator }, 'circle')
  operator.close()
  const send = async (method: string, path: string, body?: object) => {
    const response = await fetch(`${real.url}/api/v1/${path}`, {
      method,
      headers: {
        authorization: app.basic,
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    })
    return { status: response.status, body: asRecord(await response.json()) }
  }
  const topUp = () =>
    send('POST', `apps/${app.clientId}/billing/wallet/top-up`, {
      externalUserId: 'ada',
      amountUsd: '25.50',
      successUrl: 'https://shop.example/paid',
    })
  const balance = async () => {
    const query = `builder/apps/${app.clientId}/usage/balance?externalUserId=ada`
    return BigInt(String((await send('GET', query)).body['balanceUsdMicros']))
  }
  const before = await balance()
  expect((await topUp()).body['code']).toBe('stripe_connect_required')

  const browser = createBrowser(real.url)
  await browser.logIn('circle@example.com', password)
  const page = await browser.get(`/apps/${app.clientId}/billing`)
  const started = await browser.post(`/apps/${app.clientId}/billing/connect`, page.fields)
  const account = await browser.get(pathOf(started.location))
  const [target = ''] = pathOf(started.location).split('?')
  const done = await browser.post(target, { ...account.fields, action: 'complete' })
  expect((await browser.get(pathOf(done.location))).status).toBe(303)

  const opened = await topUp()
  expect(opened.status).toBe(200)
  const pay = pathOf(opened.body['checkoutUrl'])
  const user = createBrowser(real.url)
  const form = await user.get(pay)
  expect(form.text).toContain('$25.50')
  const paid = await user.post(pay, { ...form.fields, card: 'works' })
  expect(paid.location?.host).toBe('shop.example')
  await expect.poll(balance, { timeout: 10_000 }).toBe(before + 25_500_000n)

  const deleted = await deleteCustomer(real)
  const again = pathOf((await topUp()).body['checkoutUrl'])
  const second = await user.get(again)
  await user.post(again, { ...second.fields, card: 'works' })
  await expect.poll(balance, { timeout: 10_000 }).toBe(before + 51_000_000n)
  expect(await customersOf(real)).not.toContainEqual(deleted)
})
