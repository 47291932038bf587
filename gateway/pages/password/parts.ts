import { DomainError } from '../../../proto/errors.ts'
import { type Html, hidden, html } from '../../http/page.ts'

/** Parts shared by the pages of mailed links: a new password, and sign-up. */

export const passwordRule = 'The password must have 12 to 200 characters.'
export const passwordsDiffer = 'The two passwords differ.'

/** A form that takes the address of a mail. */
export const addressForm = (action: string, csrfToken: string): Html => html`
<form method="post" action="${action}">
${hidden({ csrf_token: csrfToken })}
<label for="email">E-mail address</label>
<input id="email" name="email" type="email" autocomplete="username" required maxlength="320">
<button>Send the mail</button>
</form>
<a class="button quiet" href="/login">Back to the login</a>`

/** Two fields of a form for the same new password. */
export const passwordFields = (label: string): Html => html`
<label for="password">${label}</label>
<input id="password" name="password" type="password" autocomplete="new-password" required minlength="12" maxlength="200">
<label for="repeated">The same again</label>
<input id="repeated" name="repeated" type="password" autocomplete="new-password" required minlength="12" maxlength="200">`

/** The answer to every address: `condition` is why a mail with a link may come. */
export function mailPage(condition: string, delivery: string) {
  const title = 'Look at your mail'
  const sent = html`
<h1>${title}</h1>
<p>${condition}, a mail with a link is on its way. The link works once, for 30 minutes.</p>
<p class="small">No mail after a few minutes? Check the address and the folder for spam. An address gets at most five of these mails in an hour.</p>`
  const onPage = html`${sent}
<p class="small">This trial service sends no mail. A platform admin sees the mail at <a href="/mail">/mail</a>.</p>`
  return { title, content: delivery === 'page' ? onPage : sent }
}

/** Returns the answer of core about a link, null if the link works no more. */
export async function readLink<T>(answer: Promise<T>): Promise<T | null> {
  try {
    return await answer
  } catch (error) {
    if (error instanceof DomainError && error.reason === 'GRANT_INVALID') return null
    throw error
  }
}
