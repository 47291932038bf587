import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Invoice, InvoiceLine } from '../../../proto/gen/es/tollgate/billing/v1/invoices_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { textMember } from '../../http/body.ts'
import { type Html, html, sendPage } from '../../http/page.ts'
import { type PagesDeps, pageRoute } from '../forms.ts'
import { actAs, readVisitor, toLogin } from '../visitor.ts'

/**
 * Adds the pages of invoices, made to be printed: for members after login, and for payers by a
 * signed link, which is the only credential.
 */
export function invoicePages(app: App, { publicUrl }: PagesDeps): void {
  app.get('/invoices/:token', pageRoute(), async (request, reply) => {
    const token = parameterOf(request, 'token')
    const { invoice } = await request.core.invoices.getHostedInvoice({ token })
    return show(reply, requireField(invoice, 'invoice'))
  })

  app.get('/apps/:clientId/billing/invoices/:invoiceId', pageRoute(), async (request, reply) => {
    const clientId = parameterOf(request, 'clientId')
    const invoiceId = parameterOf(request, 'invoiceId')
    const visitor = await readVisitor(request, publicUrl)
    if (!visitor)
      return toLogin(
        reply,
        `/apps/${encodeURIComponent(clientId)}/billing/invoices/${encodeURIComponent(invoiceId)}`,
      )
    actAs(request, visitor)
    const { invoice } = await request.core.invoices.getInvoice({ clientId, invoiceId })
    return show(reply, requireField(invoice, 'invoice'))
  })
}

const parameterOf = (request: FastifyRequest, name: string): string =>
  textMember(request.params, name) ?? ''

const show = (reply: FastifyReply, invoice: Invoice): FastifyReply =>
  sendPage(reply, {
    title: `${titleOf(invoice)} ${invoice.number}`,
    content: contentOf(invoice),
    isWide: true,
    referrerPolicy: 'no-referrer',
  })

const isNote = ({ invoiceType }: Invoice): boolean => invoiceType === 'credit_note'
const titleOf = (invoice: Invoice): string => (isNote(invoice) ? 'Credit note' : 'Invoice')

const statuses: Readonly<Record<string, string>> = {
  issued: 'To be paid',
  payment_processing: 'Payment in progress',
  overdue: 'Payment failed; it is tried again',
  paid: 'Paid',
  uncollectible: 'Not paid',
  void: 'Void: nothing is owed',
}

const dateOf = (instant: string): string => instant.slice(0, 10)

function contentOf(invoice: Invoice): Html {
  return html`
${invoice.plane === 'test' && html`<p class="notice"><strong>Test.</strong> No money is owed for this document.</p>`}
<h1>${titleOf(invoice)} ${invoice.number}</h1>
<p class="amount">${money(invoice.totalAmount)}</p>
<dl>
${fact('From', invoice.issuerName)}
${fact('To', invoice.customerKey)}
${fact('Issued', dateOf(invoice.issuedAt))}
${fact('Period', `${dateOf(invoice.periodStart)} to ${dateOf(invoice.periodEnd)}`)}
${
  isNote(invoice)
    ? fact('Reason', invoice.note ?? '')
    : fact('Status', statuses[invoice.status] ?? invoice.status)
}
${invoice.paidAt !== undefined && fact('Paid', dateOf(invoice.paidAt))}
</dl>
<table>
<thead><tr><th scope="col">Description</th><th scope="col" class="number">US dollars</th></tr></thead>
<tbody>
${invoice.lines.map(lineOf)}
${carriedOf('Carried from earlier documents', invoice.carriedInAmount)}
${carriedOf('Carried to the next invoice', invoice.carriedAmount)}
</tbody>
<tfoot><tr><th scope="row">Total</th><td class="number">${invoice.totalAmount}</td></tr></tfoot>
</table>
<p class="small">Amounts are net, in US dollars. No tax is computed. Times are UTC.</p>`
}

const fact = (name: string, value: string): Html =>
  html`<div><dt>${name}</dt><dd>${value}</dd></div>`

const money = (amount: string): string =>
  amount.startsWith('-') ? `−$${amount.slice(1)}` : `$${amount}`

const kinds: Readonly<Record<string, string>> = {
  subscription: 'Subscription',
  usage: 'Usage',
  overage: 'Overage',
  proration: 'Proration',
  other: 'Other',
}

function lineOf(line: InvoiceLine): Html {
  const [from, to] = [dateOf(line.periodStart), dateOf(line.periodEnd)]
  const facts = [
    kinds[line.kind] ?? line.kind,
    from === to ? from : `${from} to ${to}`,
    ...(line.tickets === undefined ? [] : [countOf(line.tickets, 'ticket')]),
    ...(line.units === undefined ? [] : [countOf(line.units, 'unit')]),
  ]
  return html`<tr><td>${line.name}<small>${facts.join(' · ')}</small></td><td class="number">${line.totalAmount}</td></tr>`
}

const countOf = (count: string, thing: string): string =>
  `${count} ${thing}${count === '1' ? '' : 's'}`

const carriedOf = (name: string, amount: string): Html | false =>
  /[1-9]/.test(amount) && html`<tr><td>${name}</td><td class="number">${amount}</td></tr>`
