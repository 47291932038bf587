import { Type } from 'typebox'
import { DomainError, type Reason, isReason, reasons } from '../../proto/errors.ts'
import type { App } from '../http/app.ts'
import { get } from '../http/endpoint.ts'
import { html, sendPage } from '../http/page.ts'

const tags = ['service']
const rules = { guard: { kind: 'none' } } as const
const response = {
  200: { description: 'A page', content: { 'text/html': { schema: { type: 'string' } } } },
}
const codeOf = (reason: Reason): string => reason.toLowerCase()

/** A refusal of the signer webhook; it is not a problem document. */
interface WebhookRefusal {
  readonly code: string
  readonly statuses: readonly number[]
  /** Names are in backticks. */
  readonly help: string
}

/**
 * Adds the pages about errors, generated from the table of reasons and the webhook's refusals: a
 * list with a search, and a page per code. The `type` of problem documents redirects there.
 */
export function errorPages(app: App, refusals: readonly WebhookRefusal[]): void {
  const own = Object.keys(reasons).filter(isReason)
  const others = refusals.filter(({ code }) => !isReason(code.toUpperCase()))
  const entries = [...own.map(toEntry), ...others.map(toWebhookEntry)]
  listErrors(app, entries)
  showError(app, others)
  redirectProblemType(app)
}

/** A code in the list. */
interface Entry {
  readonly group: string
  readonly code: string
  readonly title: string
  readonly status: string
  readonly help: string
}

const groups: readonly (readonly [name: string, statuses: readonly number[]])[] = [
  ['The request', [400, 408, 413, 414, 415, 422, 431]],
  ['The credential and its rights', [401, 403]],
  ['Payment', [402]],
  ['Missing, or in conflict', [404, 405, 409, 410]],
  ['Limits', [429]],
  ['The service', [500, 502, 503]],
]
const otherGroup = 'Other'
const webhookGroup = 'The signer webhook'
const groupNames = [...groups.map(([name]) => name), otherGroup, webhookGroup]

function toEntry(reason: Reason): Entry {
  const { title, http, help } = reasons[reason]
  const [group = otherGroup] = groups.find(([, statuses]) => statuses.includes(http)) ?? []
  return { group, code: codeOf(reason), title, status: String(http), help }
}

const toWebhookEntry = ({ code, statuses, help }: WebhookRefusal): Entry => ({
  group: webhookGroup,
  code,
  title: titleOf(code),
  status: statuses.join(' or '),
  help,
})

const titleOf = (code: string): string => {
  const words = code.replaceAll('_', ' ')
  return `${words[0]?.toUpperCase() ?? ''}${words.slice(1)}`
}

/** Whether the entry's code, title, status or help contain every word of the search. */
function matches({ code, title, status, help }: Entry, search: string): boolean {
  const text = `${code} ${code.replaceAll('_', ' ')} ${title} ${status} ${help}`.toLowerCase()
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word))
}

const Search = Type.Object({
  q: Type.Optional(
    Type.String({ maxLength: 200, description: 'Words to find in a code, its title or its help.' }),
  ),
})

function listErrors(app: App, entries: readonly Entry[]): void {
  get({
    url: '/errors',
    ...rules,
    operationId: 'listErrorPages',
    summary: 'Every error code, as a page',
    description:
      'An HTML page with every error code of this service and its signer webhook, by kind of problem. q searches them.',
    tags,
    querystring: Search,
    response,
    handler: async ({ query: { q = '' } }, reply) => {
      const matching = entries.filter((entry) => matches(entry, q.trim()))
      return sendPage(reply, {
        title: 'Errors',
        isWide: true,
        referrerPolicy: 'no-referrer',
        content: html`<h1>Errors</h1><p>Every error code of this service, by kind of problem.</p>
<form class="search" method="get" action="/errors" role="search"><input name="q" type="search" maxlength="200" value="${q}" aria-label="Search the codes" placeholder="A code, a status or a word"><button>Search</button></form>
${q.trim() !== '' && html`<p class="small">${matching.length === 0 ? 'No code matches.' : `${matching.length} of ${entries.length} codes match.`} <a href="/errors">All codes</a></p>`}
${groupNames.map((group) => listGroup(group, matching))}
<p class="small">A problem document, and a refusal of the signer webhook, have the code in their member <code>code</code>.</p>`,
      })
    },
  })(app)
}

function listGroup(name: string, entries: readonly Entry[]) {
  const items = entries
    .filter(({ group }) => group === name)
    .map(
      ({ code, title, status }) =>
        html`<li><a href="/errors/${code}">${title}</a><small>${status} · <code>${code}</code></small></li>`,
    )
  return items.length === 0 ? html`` : html`<h2>${name}</h2><ul>${items}</ul>`
}

function showError(app: App, refusals: readonly WebhookRefusal[]): void {
  get({
    url: '/errors/:code',
    ...rules,
    operationId: 'getErrorPage',
    summary: 'What an error code means and what to do about it, as a page',
    description:
      'An HTML page about one code: what happened, and what to do. The type of a problem document links to it.',
    tags,
    params: Type.Object({ code: Type.String({ description: 'As in a problem document.' }) }),
    response,
    handler: async ({ params: { code } }, reply) => {
      const refusal = refusals.find((each) => each.code === code)
      if (refusal) return sendPage(reply, refusalPage(refusal))
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
  })(app)
}

const refusalPage = ({ code, statuses, help }: WebhookRefusal) => ({
  title: titleOf(code),
  referrerPolicy: 'no-referrer' as const,
  content: html`<h1>${titleOf(code)}</h1><p>${helpText(help)}</p>
<ul><li>${statuses.join(' or ')}<small>status, in the body of the webhook's answer</small></li>
<li>${code}<small>code, of the signer webhook</small></li></ul>
<a class="button quiet" href="/errors">All errors</a>`,
})

/** The table puts names in backticks, as Markdown does; the page renders them as code. */
const helpText = (help: string) =>
  help.split('`').map((part, i) => (i % 2 === 1 ? html`<code>${part}</code>` : html`${part}`))

/** Adds the URLs that problem documents have as their `type` (http/errors.ts). */
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

/** Returns the reason of a code. Throws NOT_FOUND for an unknown code. */
function parseCode(code: string): Reason {
  const reason = code.toUpperCase()
  if (isReason(reason) && code === code.toLowerCase()) return reason
  throw new DomainError('NOT_FOUND', 'there is no error with this code')
}
