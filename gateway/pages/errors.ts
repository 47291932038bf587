import { Type } from 'typebox'
import { DomainError, type Reason, isReason, reasons } from '../../proto/errors.ts'
import type { App } from '../http/app.ts'
import { route } from '../http/route.ts'
import { html, sendPage } from './page.ts'

const tags = ['service']
const rules = { guard: { kind: 'none' } } as const
const response = {
  200: { description: 'A page', content: { 'text/html': { schema: { type: 'string' } } } },
}
const codeOf = (reason: Reason): string => reason.toLowerCase()

/**
 * The pages about errors, made from the table of reasons: a list, and a page for each code. A problem document's `type`
 * leads there, too.
 */
export function errorPages(app: App): void {
  listErrors(app)
  showError(app)
  redirectProblemType(app)
}

function listErrors(app: App): void {
  app.get(
    '/errors',
    route(rules, {
      operationId: 'listErrorPages',
      summary: 'Every error code, as a page',
      description: 'A page for people: every code that this service answers with.',
      tags,
      response,
    }),
    async (_, reply) =>
      sendPage(reply, {
        title: 'Errors',
        referrerPolicy: 'no-referrer',
        content: html`<h1>Errors</h1><p>Every code that this service answers with.</p>
<ul>${Object.keys(reasons).filter(isReason).map(listItem)}</ul>
<p class="small">The code is in the member code of a problem document.</p>`,
      }),
  )
}

function listItem(reason: Reason) {
  const { title, http } = reasons[reason]
  return html`<li><a href="/errors/${codeOf(reason)}">${title}</a><small>${http} · ${codeOf(reason)}</small></li>`
}

function showError(app: App): void {
  app.get(
    '/errors/:code',
    route(rules, {
      operationId: 'getErrorPage',
      summary: 'What an error code means and what to do about it, as a page',
      description:
        "A page for people about one code: what happened, and what to do. A problem document's type leads here.",
      tags,
      params: Type.Object({ code: Type.String({ description: 'As in a problem document.' }) }),
      response,
    }),
    async ({ params: { code } }, reply) => {
      const reason = parseCode(code)
      const { title, http, oauth, help } = reasons[reason]
      return sendPage(reply, {
        title,
        referrerPolicy: 'no-referrer',
        content: html`<h1>${title}</h1><p>${helpText(help)}</p>
<ul><li>${http}<small>HTTP status</small></li>
<li>${codeOf(reason)}<small>code, in a problem document</small></li>
<li>${oauth}<small>error, on token routes</small></li></ul>
<a class="button quiet" href="/errors">All errors</a>`,
      })
    },
  )
}

/** The table writes names as Markdown does, between backticks; in a page they are code. */
const helpText = (help: string) =>
  help.split('`').map((part, i) => (i % 2 === 1 ? html`<code>${part}</code>` : html`${part}`))

/** The addresses that problem documents have as their `type` (http/errors.ts). */
function redirectProblemType(app: App): void {
  app.get(
    '/problems/:problem',
    {
      config: { rules },
      schema: { hide: true, params: Type.Object({ problem: Type.String() }) },
    },
    async ({ params: { problem } }, reply) =>
      reply.redirect(`/errors/${codeOf(parseCode(problem.replaceAll('-', '_')))}`, 301),
  )
}

/** The reason of a code. NOT_FOUND when there is none. */
function parseCode(code: string): Reason {
  const reason = code.toUpperCase()
  if (isReason(reason) && code === code.toLowerCase()) return reason
  throw new DomainError('NOT_FOUND', 'there is no error with this code')
}
