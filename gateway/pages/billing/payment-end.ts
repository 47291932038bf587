import type { App } from '../../http/app.ts'
import { html, sendPage } from '../../http/page.ts'
import { pageRoute } from '../forms.ts'

/** Adds the pages that a pay page leads to if the app has named no address of its own. */
export function paymentEndPages(app: App): void {
  app.get('/pay/done', pageRoute(), async (_request, reply) =>
    sendPage(reply, {
      title: 'Thank you',
      content: html`
<h1>Thank you</h1>
<p>Your payment is being booked. You can close this page and go back to the app.</p>`,
    }),
  )
  app.get('/pay/canceled', pageRoute(), async (_request, reply) =>
    sendPage(reply, {
      title: 'Nothing was paid',
      content: html`
<h1>Nothing was paid</h1>
<p>You left the payment page, so nothing has changed. You can go back to the app and start again.</p>`,
    }),
  )
}
