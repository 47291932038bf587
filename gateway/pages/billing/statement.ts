import type {
  BilledUsage,
  GetStatementResponse,
} from '../../../proto/gen/es/tollgate/billing/v1/billing_pb.ts'
import { formatDollars, microsToAttos, usdMicros } from '../../../core/lib/money.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { textMember } from '../../http/body.ts'
import { type Html, html, sendPage } from '../../http/page.ts'
import { type PagesDeps, pageRoute } from '../forms.ts'
import { actAs, readVisitor, toLogin } from '../visitor.ts'

/** Adds the page of an app's statement of a past month, made to be printed, for members. */
export function statementPages(app: App, { publicUrl }: PagesDeps): void {
  app.get('/apps/:clientId/billing/statements/:month', pageRoute(), async (request, reply) => {
    const clientId = textMember(request.params, 'clientId') ?? ''
    const month = textMember(request.params, 'month') ?? ''
    const visitor = await readVisitor(request, publicUrl)
    if (!visitor)
      return toLogin(
        reply,
        `/apps/${encodeURIComponent(clientId)}/billing/statements/${encodeURIComponent(month)}`,
      )
    actAs(request, visitor)
    const statement = await request.core.billing.getStatement({ clientId, month })
    const { app: managed } = await request.core.management.getApp({ clientId })
    const { name } = requireField(managed, 'app')
    return sendPage(reply, {
      title: `Statement ${month}`,
      content: contentOf(statement, { name, clientId, month }),
      isWide: true,
      referrerPolicy: 'no-referrer',
    })
  })
}

interface Subject {
  readonly name: string
  readonly clientId: string
  readonly month: string
}

function contentOf(statement: GetStatementResponse, { name, clientId, month }: Subject): Html {
  const { plan, platformCutPercent, periodStart, periodEnd, days } = statement
  const total = requireField(statement.usage, 'usage')
  const used = days
    .map(({ date, usage }) => ({ date, usage: requireField(usage, 'usage') }))
    .filter(({ usage }) => usage.requestCount !== '0')
  return html`
<h1>Statement ${month}</h1>
<p class="amount">$${dollars(total.ownerChargeUsdMicros)}</p>
<dl>
${fact('App', html`${name}<small>${clientId}</small>`)}
${fact('Period', `${periodStart.slice(0, 10)} to ${periodEnd.slice(0, 10)}`)}
${fact("Owner's plan", plan?.name ?? 'none')}
${fact('Platform cut', platformCutPercent === undefined ? 'none' : `${platformCutPercent} %`)}
</dl>
${
  total.unpricedCount !== '0' &&
  html`<p class="notice">${total.unpricedCount} of the tickets wait for a price. No amount includes them yet.</p>`
}
<table>
<thead><tr><th scope="col">Day</th><th scope="col" class="number">Network fee</th><th scope="col" class="number">Owner charge</th></tr></thead>
<tbody>
${used.map(({ date, usage }) => html`<tr><td>${date}<small>${countOf(usage)}</small></td>${amounts(usage)}</tr>`)}
</tbody>
<tfoot><tr><th scope="row">Total, ${countOf(total)}</th>${amounts(total)}</tr></tfoot>
</table>
<p class="small">Amounts are US dollars, rounded to a millionth so that the days add up to the total. Days are UTC; days without tickets are left out. The owner charge is the network fee and the platform's cut. Tickets that arrive or are priced late change their month.</p>`
}

const fact = (name: string, value: string | Html): Html =>
  html`<div><dt>${name}</dt><dd>${value}</dd></div>`

const countOf = ({ requestCount }: BilledUsage): string =>
  `${requestCount} ticket${requestCount === '1' ? '' : 's'}`

const amounts = ({ networkFeeUsdMicros, ownerChargeUsdMicros }: BilledUsage): Html =>
  html`<td class="number">${dollars(networkFeeUsdMicros)}</td><td class="number">${dollars(ownerChargeUsdMicros)}</td>`

const dollars = (micros: string): string => formatDollars(microsToAttos(usdMicros(BigInt(micros))))
