import type { FastifyReply, FastifyRequest } from 'fastify'
import { type DomainError, reasons } from '../../proto/errors.ts'
import type { App } from '../http/listener.ts'
import type { Observe } from '../http/metrics.ts'
import { toRefusal } from '../http/errors.ts'
import { authorizePages } from './authorize.ts'
import { devicePages } from './device.ts'
import { html } from './html.ts'
import { initiateLoginPages } from './initiate-login.ts'
import { loginPages } from './login.ts'
import { sendPage } from './page.ts'
import { providerPages } from './provider-login.ts'
import { resetPages } from './reset.ts'
import type { PagesDeps } from './routes.ts'
import { sessionEndPages } from './session-end.ts'

/** Pages for people: rendered here, without scripts. What is refused on them is said on a page too. */
export async function pageRoutes(
  app: App,
  { observe, ...deps }: PagesDeps & { observe: Observe },
): Promise<void> {
  await app.register(async (pages) => {
    pages.setErrorHandler<Error>(async (thrown, request, reply) => {
      const error = toRefusal(thrown, request.routeOptions.config.rules)
      if (reasons[error.reason].http >= 500) observe.failed(request, error)
      return sendProblem(request, reply, error)
    })
    for (const add of [
      loginPages,
      providerPages,
      resetPages,
      devicePages,
      initiateLoginPages,
      authorizePages,
      sessionEndPages,
    ])
      add(pages, deps)
  })
}

function sendProblem(
  request: FastifyRequest,
  reply: FastifyReply,
  { reason, message }: DomainError,
): FastifyReply {
  const { http: status, title } = reasons[reason]
  request.reason = reason
  if (status === 429 && !reply.hasHeader('retry-after')) void reply.header('retry-after', '600')
  if (status === 503) void reply.header('retry-after', '1')
  const says =
    reason === 'INTERNAL'
      ? 'Something went wrong here; it has been logged.'
      : `${message[0]?.toUpperCase() ?? ''}${message.slice(1)}.`
  // A 401 here is a page for a person: there is no scheme to challenge with, so it is told as 403.
  return sendPage(reply, {
    title,
    status: status === 401 ? 403 : status,
    content: html`<h1>That did not work</h1><p class="problem" role="alert">${says}</p>
<a class="button quiet" href="/login">To the login</a>
<p class="small">For whoever helps you: ${request.correlationId}</p>`,
  })
}
