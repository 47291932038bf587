import { type Html, html } from './html.ts'

const meanings: Readonly<Record<string, string>> = {
  openid: 'Know who you are here',
  profile: 'See your name',
  email: 'See your e-mail address',
  offline_access: 'Keep you logged in',
  'sign:job': 'Have jobs signed and paid in your name',
}

/** What an application asks for, in words, with the scope's own name below. */
export const scopeList = (scopes: readonly string[]): Html =>
  html`<ul>${scopes.map(
    (scope) => html`<li>${meanings[scope] ?? scope}<small>${scope}</small></li>`,
  )}</ul>`
