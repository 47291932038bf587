import type { Invitation } from '../../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import { DomainError } from '../../proto/errors.ts'
import type { App } from '../http/app.ts'
import { type PagesDeps, field, formRoute, pageRoute } from './forms.ts'
import { type Html, hidden, html, sendPage } from '../http/page.ts'
import { readSender, toLogin, readVisitor } from './visitor.ts'

const path = '/invitations'

/**
 * Adds the pages on which people answer invitations to apps. Membership starts only with a click
 * here.
 */
export function invitationPages(app: App, { publicUrl }: PagesDeps): void {
  app.get(path, pageRoute(), async (request, reply) => {
    const visitor = await readVisitor(request, publicUrl)
    if (!visitor) return toLogin(reply, path)
    const { token: sessionToken, csrfToken, email } = visitor
    const { invitations } = await request.core.accounts.listInvitations({ sessionToken })
    const content = html`
<h1>Invitations</h1>
<p>to ${email}</p>
${invitations.length === 0 ? html`<p>No invitation waits for an answer.</p>` : ''}
${invitationForms(invitations, csrfToken)}
<a class="button quiet" href="/login">Back</a>`
    return sendPage(reply, { title: 'Invitations', content })
  })

  app.post(path, formRoute(), async (request, reply) => {
    const { token: sessionToken } = await readSender(request, publicUrl)
    const action = field(request, 'action')
    const answer = { sessionToken, invitationId: field(request, 'invitation_id') ?? '' }
    if (action === 'accept') await request.core.accounts.acceptInvitation(answer)
    else if (action === 'decline') await request.core.accounts.declineInvitation(answer)
    else throw new DomainError('REQUEST_INVALID', 'action must be accept or decline')
    return reply.redirect(path, 303)
  })
}

/** Returns one form per invitation. */
const invitationForms = (invitations: readonly Invitation[], csrfToken: string): Html[] =>
  invitations.map(
    ({ id, appName, clientId, role, invitedBy, expiresAt }) => html`
<form method="post" action="${path}" class="item">
<ul><li>${appName}<small>${clientId}</small></li>
<li>as ${role}<small>${whatRolesMay[role]}</small></li>
<li>invited by ${invitedBy}<small>until ${expiresAt.slice(0, 10)}</small></li></ul>
${hidden({ csrf_token: csrfToken, invitation_id: id })}
<button name="action" value="accept">Join ${appName}</button>
<button name="action" value="decline" class="quiet">Decline</button>
</form>`,
  )

const whatRolesMay: Readonly<Record<string, string>> = {
  owner: 'you are responsible for the app, and may delete it',
  admin: 'you may change the app',
  viewer: 'you may view the app',
}

/** Returns a link from the login page to pending invitations. */
export const invitationNote = (count: number): Html | false =>
  count > 0 &&
  html`<p><a href="${path}">${count === 1 ? 'One invitation to an app' : `${count} invitations to apps`}</a> ${count === 1 ? 'waits' : 'wait'} for your answer.</p>`
