import type { FastifyRequest } from 'fastify'
import type { Mail } from '../../proto/gen/es/tollgate/mail/v1/mail_pb.ts'
import { isUnknownCall } from '../core/call-context.ts'
import type { App } from '../http/app.ts'
import { type Html, html, sendPage } from '../http/page.ts'
import { type PagesDeps, pageRoute } from './forms.ts'
import { actAs, readVisitor, toLogin } from './visitor.ts'

/**
 * Returns how mails reach people: smtp, page or none. A core of an older release, which does not
 * know the call, sends none.
 */
export async function readMailDelivery(request: FastifyRequest): Promise<string> {
  try {
    return (await request.core.mail.getMailDelivery({})).delivery
  } catch (error) {
    if (isUnknownCall(error)) return 'none'
    throw error
  }
}

const path = '/mail'

/**
 * The newest mails, for platform admins. Without a mail server, the all-in-one service shows their
 * text and links here.
 */
export function mailPages(app: App, { publicUrl }: PagesDeps): void {
  app.get(path, pageRoute(), async (request, reply) => {
    const visitor = await readVisitor(request, publicUrl)
    if (!visitor) return toLogin(reply, path)
    actAs(request, visitor)
    const { mails } = await request.core.mail.listMails({})
    const content = html`
<h1>Mails</h1>
<p>The newest hundred, as a platform admin sees them.</p>
${mails.length === 0 ? html`<p>There are no mails yet.</p>` : mails.map(renderMail)}
<a class="button quiet" href="/app">Open the dashboard</a>`
    return sendPage(reply, { title: 'Mails', content, isWide: true, referrerPolicy: 'no-referrer' })
  })
}

const renderMail = ({ email, kind, status, subject, text, error, createdAt }: Mail): Html => html`
<section class="item"><ul>
<li>${subject ?? kind}<small>to ${email}, ${createdAt.slice(0, 16).replace('T', ' ')} UTC: ${status}${error === undefined ? '' : ` (${error})`}</small></li>
${text !== undefined && html`<li><pre>${text}</pre></li>`}
${text !== undefined && linkIn(text)}
</ul></section>`

/** Returns a link to the page of ours that the mail's text names. */
function linkIn(text: string): Html | false {
  const [address] = /^https?:\/\/\S+$/m.exec(text) ?? []
  return address !== undefined && html`<li><a href="${address}">Follow its link</a></li>`
}
