import type { Pool } from 'pg'
import { uuidV7 } from '../../../../core/lib/crypto.ts'
import { until } from '../../../support/waiting.ts'
import { createBrowser } from '../../pages/support.ts'
import { asRecord } from '../../support.ts'
import type { Grants } from '../oidc/support.ts'
import type { Step } from './examples-story.ts'

const apps = '/api/v1/apps/{clientId}'

/** Connects the app at the simulated processor, and prepays for its user. */
export async function tellWallet(
  step: (request: Step) => Promise<Record<string, unknown>>,
  { real, app }: Grants,
): Promise<void> {
  const { clientId, session: headers } = app
  const { url } = asRecord(
    await (
      await fetch(`${real.url}/api/v1/apps/${clientId}/billing/processor/connect`, {
        method: 'POST',
        headers,
      })
    ).json(),
  )
  const link = new URL(String(url))
  const browser = createBrowser(real.url)
  const page = await browser.get(link.pathname + link.search)
  await browser.post(link.pathname, { ...page.fields, action: 'complete' })
  await real.core.sql.query(
    `insert into billing_settings (app_id, billing_mode, updated_at)
     select app_id, 'merchant', now() from clients where client_id = $1
     on conflict (app_id) do update set billing_mode = 'merchant'`,
    [clientId],
  )
  const wallet = `${apps}/billing/wallet`
  const connected = async (): Promise<boolean> => {
    const answer = await fetch(`${real.url}/api/v1/apps/${clientId}/billing/processor`, { headers })
    return asRecord(await answer.json())['status'] === 'connected'
  }
  await until(connected)
  const card = await step({ operation: `post ${apps}/billing/payment-method`, status: 200 })
  await payAt(browser, String(card['checkoutUrl']))
  const topUp = await step({ operation: `post ${wallet}/top-up`, status: 200 })
  const path = { clientId, sessionId: String(topUp['sessionId']) }
  await step({ operation: `get ${wallet}/checkouts/{sessionId}`, status: 200, path })
  await payAt(browser, String(topUp['checkoutUrl']))
  const query = { externalUserId: 'ada' }
  await until(async () => {
    const answer = await fetch(
      `${real.url}/api/v1/apps/${clientId}/billing/wallet/checkouts/${path.sessionId}`,
      { headers },
    )
    return asRecord(await answer.json())['status'] === 'settled'
  })
  // A plan that was changed in this millisecond pays from the next one on.
  real.core.clock.advance(1_000)
  await step({ operation: `get ${wallet}`, status: 200, query })
  await step({ operation: `post ${apps}/billing/collect`, status: 200 })
  const plan = { name: 'Sold', type: 'subscription', status: 'active', priceAmount: '12.00' }
  const created = await fetch(`${real.url}/api/v1/apps/${clientId}/plans`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify({ ...plan, includedUnits: '10', overageRateWei: '1' }),
  })
  const planId = String(asRecord(await created.json())['id'])
  const operation = `post ${apps}/billing/checkout`
  const ordered = await step({ operation, status: 200, headers, real: { planId } })
  await payAt(browser, String(ordered['checkoutUrl']))
  await tellInvoices(step, { real, app })
  await step({ operation: `get ${apps}/billing/state`, status: 200, query })
  const limited = { ...query, limit: '1' }
  await step({ operation: `get ${wallet}/transactions`, status: 200, query: limited })
}

/** Reads the invoice of the paid plan, credits part of it, and voids a second one. */
async function tellInvoices(
  step: (request: Step) => Promise<Record<string, unknown>>,
  { real, app: { clientId, session: headers } }: Pick<Grants, 'real' | 'app'>,
): Promise<void> {
  const operation = `get ${apps}/billing/invoices`
  await until(async () => {
    const answer = await fetch(`${real.url}/api/v1/apps/${clientId}/billing/invoices`, { headers })
    return asRecord(await answer.json())['totalCount'] === 1
  })
  const { items } = await step({ operation, status: 200, headers })
  const [invoice] = Array.isArray(items) ? items.map(asRecord) : []
  const path = { clientId, invoiceId: String(invoice?.['id']) }
  await step({ operation: `${operation}/{invoiceId}`, status: 200, headers, path })
  const noting = operation.replace('get', 'post')
  await step({ operation: `${noting}/{invoiceId}/credit-notes`, status: 200, headers, path })
  const unpaid = { clientId, invoiceId: uuidV7(real.core.clock.now().getTime()) }
  await copyInvoice(real.core.sql, path.invoiceId, unpaid.invoiceId)
  await step({ operation: `${noting}/{invoiceId}/void`, status: 200, headers, path: unpaid })
}

/** Inserts an unpaid invoice like another one. */
async function copyInvoice(sql: Pool, from: string, to: string): Promise<void> {
  await sql.query(
    `with copied as (
       insert into invoices
       select (jsonb_populate_record(i, jsonb_build_object('id', $2::text, 'number', 2))).* from invoices i where i.id = $1),
     numbered as (
       update invoice_numbers n set last_invoice = 2 from invoices i where i.id = $1 and n.app_id = i.app_id)
     insert into invoice_lines
     select (jsonb_populate_record(l, jsonb_build_object('invoice_id', $2::text,
       'period_start', l.period_start + interval '1 month', 'period_end', l.period_end + interval '1 month'))).*
     from invoice_lines l where l.invoice_id = $1`,
    [from, to],
  )
}

/** Pays on the page of the simulated processor with a card that works. */
async function payAt(browser: ReturnType<typeof createBrowser>, url: string): Promise<void> {
  const { pathname } = new URL(url)
  const page = await browser.get(pathname)
  await browser.post(pathname, { ...page.fields, card: 'works' })
}
