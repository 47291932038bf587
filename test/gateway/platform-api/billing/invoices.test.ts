import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Invoice } from '../../../../core/billing/invoices/invoice.ts'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { issueOne, pay, threeDollars, userOf } from '../../../core/billing/invoices/world.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'
import { envelope } from '../../../core/metering/harness.ts'
import { serviceToken } from '../../../core/support.ts'
import { type Real, type RealApp, newSellingApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

let real: Real
let operator: CoreClient
let shop: RealApp
beforeAll(async () => {
  real = await startReal({ PAYMENT_PROCESSOR: 'simulated' })
  operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
  shop = await newMerchant('Shop')
})
afterAll(async () => {
  operator.close()
  await real.stop()
})

const newMerchant = (name: string): Promise<RealApp> => newSellingApp({ real, operator }, name)

const world = {
  get sql() {
    return real.core.sql
  },
  get clock() {
    return real.core.clock
  },
  rows: async (text: string, values: readonly unknown[] = []) =>
    (await real.core.sql.query(text, [...values])).rows as Record<string, string | null>[],
}

let named = 0

/** Issues an invoice over 4 USD to a new user. */
async function newInvoice(app = shop, user = `user-${(named += 1)}`): Promise<Invoice> {
  await spend(app, user)
  const invoice = await issueOne(world, await userOf(world, app.clientId, user))
  if (!invoice) throw new Error('no invoice was issued')
  return invoice
}

/** Books tickets of 9 USD. */
async function spend(app: RealApp, user: string): Promise<void> {
  const tickets = Array.from({ length: 3 }, () =>
    envelope(
      {
        auth_id: `${app.clientId}:${user}`,
        computed_fee: threeDollars,
        current_time: real.core.clock.now().toISOString(),
        sequence_number: 0,
        session_id: `session-${(named += 1)}`,
      },
      { id: randomUUID() },
    ),
  )
  await real.core.as().ingestEvents({ envelopes: tickets })
}

type Headers = Readonly<Record<string, string>>

async function ask(
  method: string,
  path: string,
  {
    app = shop,
    headers = app.session,
    body,
  }: { app?: RealApp; headers?: Headers; body?: object } = {},
) {
  const response = await fetch(`${real.url}/api/v1/apps/${app.clientId}/billing/invoices${path}`, {
    method,
    headers: { ...headers, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  })
  return { status: response.status, body: asRecord(await response.json()) }
}

describe('GET billing/invoices', () => {
  it('has true pages, and the number of all invoices', async () => {
    const app = await newMerchant('Pages')
    const issued: Invoice[] = []
    for (let i = 0; i < 5; i += 1) {
      issued.push(await newInvoice(app))
      real.core.clock.advance(1_000)
    }
    const ids = issued.map(({ id }) => id).toReversed()
    const pages = await Promise.all(
      ['1', '2', '3', '4'].map((page) => ask('GET', `?page=${page}&pageSize=2`, { app })),
    )
    const items = pages.map(({ body }) => (body['items'] as { id: string }[]).map(({ id }) => id))
    expect(items).toEqual([ids.slice(0, 2), ids.slice(2, 4), ids.slice(4), []])
    for (const { body } of pages) expect(body).toMatchObject({ pageSize: 2, totalCount: 5 })
    expect((await ask('GET', '?externalUserId=nobody', { app })).status).toBe(404)
  })

  it('has only the documents with a status, or of a type, with their number', async () => {
    const app = await newMerchant('Statuses')
    const user = 'stella'
    const [paid, voided, open] = [
      await newInvoice(app, user),
      await newInvoice(app),
      await newInvoice(app, user),
    ]
    await pay(world, paid, randomUUID())
    expect((await ask('POST', `/${voided.id}/void`, { app, body: { reason: 'x' } })).status).toBe(
      200,
    )
    const list = async (query: string) => {
      const { body } = await ask('GET', `?${query}`, { app })
      const items = body['items'] as { id: string }[]
      return { ids: items.map(({ id }) => id), count: body['totalCount'] }
    }
    expect(await list('status=paid')).toEqual({ ids: [paid.id], count: 1 })
    expect(await list('status=void')).toEqual({ ids: [voided.id], count: 1 })
    expect(await list('status=overdue')).toEqual({ ids: [], count: 0 })
    expect(await list('status=issued&invoiceType=standard')).toEqual({ ids: [open.id], count: 1 })
    expect((await list('status=issued')).count).toBe(2)
    expect((await list('invoiceType=credit_note')).count).toBe(1)
    const standard = await list('invoiceType=standard&pageSize=2&page=2')
    expect(standard).toMatchObject({ ids: [expect.any(String)], count: 3 })
    expect((await list(`externalUserId=${user}&invoiceType=standard`)).count).toBe(2)
    expect((await list(`externalUserId=${user}&status=void`)).count).toBe(0)
    for (const query of ['status=lost', 'invoiceType=invoice'])
      expect((await ask('GET', `?${query}`, { app })).status).toBe(400)
  })

  it('clamps large numbers and refuses others', async () => {
    const { body } = await ask('GET', '?page=99999999&pageSize=5000')
    expect(body).toMatchObject({ page: 10_000, pageSize: 100 })
    for (const query of ['page=0', 'page=-1', 'page=1.5', 'pageSize=x', 'payer=me'])
      expect((await ask('GET', `?${query}`)).status).toBe(400)
  })

  it('is 404 without a session, and for another app', async () => {
    const { id } = await newInvoice()
    const other = await newMerchant('Other')
    const { basic } = shop
    for (const path of ['', `/${id}`]) {
      expect((await ask('GET', path, { headers: {} })).status).toBe(404)
      expect((await ask('GET', path, { headers: { authorization: basic } })).status).toBe(404)
    }
    expect((await ask('GET', `/${id}`, { app: other })).status).toBe(404)
    expect((await ask('GET', '/unknown')).status).toBe(404)
  })

  it('shows the invoices of its owner in billing mode owner_rollup', async () => {
    const app = await real.newApp('Rollup')
    await operator.billing.updateBillingSettings({
      clientId: app.clientId,
      billingMode: undefined,
      endUserCap: undefined,
      isPlatformOwned: false,
      servesEveryApp: undefined,
      platformCutPercent: undefined,
    })
    await newInvoice(app)
    const [owner] = await world.rows(
      `select app_id, user_id as id from ledger_entries where charged_app_id = (
         select app_id from clients where client_id = $1)`,
      [app.clientId],
    )
    const [platform] = await world.rows(
      `select c.client_id, u.external_user_id from end_users u join clients c on c.app_id = u.app_id and c.kind = 'public'
       where u.id = $1`,
      [owner?.['id']],
    )
    const user = await userOf(
      world,
      platform?.['client_id'] ?? '',
      platform?.['external_user_id'] ?? '',
    )
    const invoice = await issueOne(world, user)
    const { body } = await ask('GET', '', { app })
    expect(body).toMatchObject({ totalCount: 1, items: [{ id: invoice?.id, totalAmount: '4.00' }] })
    const { body: shown } = await ask('GET', `/${invoice?.id}`, { app })
    expect(shown['lines']).toMatchObject([
      { name: 'Usage of the app Rollup', chargedClientId: app.clientId, tickets: '3' },
    ])
    const users = await ask('GET', '?payer=users', { app })
    expect(users.body).toMatchObject({ totalCount: 1 })
    expect(shown['hostedInvoiceUrl']).toEqual(expect.any(String))
    // Only the platform, which issued it, voids it.
    const answer = await ask('POST', `/${invoice?.id}/void`, { app, body: { reason: 'no' } })
    expect(answer.status).toBe(404)
  })
})

describe("an owner's invoice", () => {
  it("shows the names of the owner's other apps, and the link, to the paying owner only", async () => {
    const [app, secret] = [await real.newApp('First'), await real.newApp('Secret')]
    // One owner, so that both apps are on one invoice.
    await world.sql.query(
      `update members set account_id = (select account_id from members m join clients c using (app_id) where c.client_id = $1)
       where app_id = (select app_id from clients where client_id = $2)`,
      [app.clientId, secret.clientId],
    )
    await spend(app, 'ada')
    await spend(secret, 'ada')
    const [owner] = await world.rows(
      `select distinct app_id, user_id from ledger_entries where charged_app_id = (
         select app_id from clients where client_id = $1)`,
      [app.clientId],
    )
    const invoice = await issueOne(world, {
      appId: appId(owner?.['app_id'] ?? ''),
      userId: userId(owner?.['user_id'] ?? ''),
    })
    const [viewer, coOwner] = [await real.newPerson(), await real.newPerson()]
    for (const [{ accountId }, role] of [
      [viewer, 'viewer'],
      [coOwner, 'owner'],
    ] as const)
      await world.sql.query(
        `insert into members (app_id, account_id, role, created_at)
         select app_id, $1, $2, now() from clients where client_id = $3`,
        [accountId, role, app.clientId],
      )
    const read = async (headers: Headers) =>
      (await ask('GET', `/${invoice?.id}`, { app, headers })).body
    const names = (body: Record<string, unknown>) =>
      (body['lines'] as { name: string; chargedClientId: string | null }[])
        .map((line) => [line.name, line.chargedClientId ?? null])
        .toSorted()
    const own = ['Usage of the app First', app.clientId]
    const whole = await read(app.session)
    expect(names(whole)).toEqual([own, ['Usage of the app Secret', secret.clientId]])
    expect(whole['hostedInvoiceUrl']).toEqual(expect.any(String))
    const hidden = await read(viewer.session)
    expect(await read(coOwner.session)).toEqual(hidden)
    expect(names(hidden)).toEqual([['Usage of another app of the owner', null], own])
    expect(hidden['hostedInvoiceUrl']).toBeNull()
    expect(JSON.stringify(hidden)).not.toContain('Secret')
    expect(JSON.stringify(hidden)).not.toContain(secret.clientId)
    expect(hidden['totalAmount']).toBe(whole['totalAmount'])
    const list = (await ask('GET', '', { app, headers: viewer.session })).body
    expect(list).toMatchObject({ totalCount: 1, items: [{ hostedInvoiceUrl: null }] })
  })
})

describe('void', () => {
  const debtOf = async ({ userId }: Invoice): Promise<string | null | undefined> =>
    (
      await world.rows(
        'select overage_attos - collected_attos as debt from balances where user_id = $1',
        [userId],
      )
    )[0]?.['debt']

  it('ends the debt of an unpaid invoice, once', async () => {
    const invoice = await newInvoice()
    const body = { reason: 'wrong plan' }
    const voided = await ask('POST', `/${invoice.id}/void`, { body })
    expect(voided.body).toMatchObject({ status: 'void', creditedAmount: '4.00' })
    expect(await debtOf(invoice)).toBe('0')
    expect((await ask('POST', `/${invoice.id}/void`, { body })).status).toBe(409)
    expect(await issueOne(world, invoice)).toBeNull()
    const { body: list } = await ask('GET', '')
    expect(list['items']).toContainEqual(
      expect.objectContaining({
        invoiceType: 'credit_note',
        invoiceId: invoice.id,
        totalAmount: '-4.00',
        note: 'wrong plan',
      }),
    )
  })

  it('is refused for a paid invoice, which is credited instead', async () => {
    const invoice = await newInvoice()
    await pay(world, invoice, randomUUID())
    expect((await ask('POST', `/${invoice.id}/void`, { body: { reason: 'x' } })).status).toBe(409)
    const credit = (amountUsd: string, key: string) =>
      ask('POST', `/${invoice.id}/credit-notes`, {
        headers: { ...shop.session, 'idempotency-key': key },
        body: { amountUsd, reason: 'outage' },
      })
    const first = await credit('3.00', 'a')
    expect(first.body).toMatchObject({ invoiceType: 'credit_note', totalAmount: '-3.00' })
    expect((await credit('3.00', 'a')).body['id']).toBe(first.body['id'])
    expect((await credit('1.01', 'b')).status).toBe(409)
    const { body: credited } = await ask('GET', `/${invoice.id}`)
    const { id, number } = first.body
    expect(credited['creditNotes']).toMatchObject([
      { id, number, totalAmount: '-3.00', reason: 'credit', note: 'outage' },
    ])
    expect(first.body).toMatchObject({ creditNotes: [], invoiceNumber: credited['number'] })
    expect(await debtOf(invoice)).toBe('-3000000000000000000')
    const { externalUserId } = await userNamed(invoice)
    const next = await newInvoice(shop, externalUserId)
    const { body } = await ask('GET', `/${next.id}`)
    expect(body).toMatchObject({ totalAmount: '6.00' })
    expect(body['lines']).toContainEqual(
      expect.objectContaining({ kind: 'other', name: 'Credit notes', totalAmount: '-3.00' }),
    )
  })

  it('needs an invoice that is not paid before it is credited, and edit rights', async () => {
    const invoice = await newInvoice()
    const body = { amountUsd: '1.00', reason: 'outage' }
    expect((await ask('POST', `/${invoice.id}/credit-notes`, { body })).status).toBe(409)
    for (const path of ['void', 'credit-notes'])
      expect(
        (await ask('POST', `/${invoice.id}/${path}`, { headers: {}, body: { ...body } })).status,
      ).toBeOneOf([400, 401])
  })
})

const userNamed = async ({ userId }: Invoice) => {
  const [row] = await world.rows('select external_user_id from end_users where id = $1', [userId])
  return { externalUserId: row?.['external_user_id'] ?? '' }
}

describe('the page of an invoice', () => {
  const read = async (
    url: string,
  ): Promise<{ status: number; text: string; headers: globalThis.Headers }> => {
    const response = await fetch(url, { headers: { accept: 'text/html' }, redirect: 'manual' })
    return { status: response.status, text: await response.text(), headers: response.headers }
  }

  it('opens by its signed link without a login, and only by that', async () => {
    const invoice = await newInvoice()
    const { body } = await ask('GET', `/${invoice.id}`)
    const url = new URL(String(body['hostedInvoiceUrl']))
    const page = await read(`${real.url}${url.pathname}`)
    expect(page.status).toBe(200)
    expect(page.text).toContain(String(body['number']))
    expect(page.text).toContain('No tax is computed')
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'")
    const forged = url.pathname.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'))
    expect((await read(`${real.url}${forged.slice(0, -3)}AAA`)).status).toBe(404)
    const other = await newInvoice()
    const token = url.pathname.split('_').slice(1).join('_')
    const swapped = `/invoices/${other.id.replaceAll('-', '')}_${token}`
    expect((await read(`${real.url}${swapped}`)).status).toBe(404)
  })

  it('leads members without a session to the login', async () => {
    const { id } = await newInvoice()
    const path = `/apps/${shop.clientId}/billing/invoices/${id}`
    expect((await read(`${real.url}${path}`)).status).toBe(303)
    const response = await fetch(`${real.url}${path}`, {
      headers: { ...shop.session, accept: 'text/html' },
    })
    expect(response.status).toBe(200)
  })
})
