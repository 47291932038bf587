import type { FastifyReply, FastifyRequest } from 'fastify'
import { type DomainError, reasons } from '../../proto/errors.ts'
import type { App } from '../http/app.ts'
import type { HttpMetrics } from '../http/metrics.ts'
import { toRefusal } from '../http/refusal.ts'
import { authorizePages } from './authorize.ts'
import { devicePages } from './device.ts'
import type { PagesDeps } from './forms.ts'
import { initiateLoginPages } from './initiate-login.ts'
import { loginPages } from './login.ts'
import { logoutPages } from './logout.ts'
import { html, sendPage } from './page.ts'
import { providerPages } from './provider-login.ts'
import { resetPages } from './reset.ts'

/** Pages for people: rendered here, without scripts. Their refusals are pages, too. */
export async function pageRoutes(
  app: App,
  { httpMetrics, ...deps }: PagesDeps & { httpMetrics: HttpMetrics },
): Promise<void> {
  await app.register(async (pages) => {
    pages.setErrorHandler<Error>(async (thrown, request, reply) => {
      const error = toRefusal(thrown, request.routeOptions.config.rules)
      if (reasons[error.reason].http >= 500) httpMetrics.failed(request, error)
      return sendProblem(request, reply, error)
    })
    for (const addPages of [
      loginPages,
      providerPages,
      resetPages,
      devicePages,
      initiateLoginPages,
      authorizePages,
      logoutPages,
    ])
      addPages(pages, deps)
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
  const sentence =
    reason === 'INTERNAL'
      ? 'Something went wrong here; it has been logged.'
      : `${message[0]?.toUpperCase() ?? ''}${message.slice(1)}.`
  // 403 instead of 401: a page for a person has no authentication scheme to challenge with.
  return sendPage(reply, {
    title,
    status: status === 401 ? 403 : status,
    content: html`<h1>That did not work</h1><p class="problem" role="alert">${sentence}</p>
<a class="button quiet" href="/login">To the login</a>
<p class="small">For whoever helps you: ${request.correlationId}</p>`,
  })
}
