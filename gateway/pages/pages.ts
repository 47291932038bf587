import type { FastifyReply, FastifyRequest } from 'fastify'
import { type DomainError, reasons } from '../../proto/errors.ts'
import { ownOrigins } from '../http/cors.ts'
import type { App } from '../http/app.ts'
import { errorPage, sendError } from '../http/errors.ts'
import { wantsPage } from '../http/headers.ts'
import type { HttpMetrics } from '../http/metrics.ts'
import { toRefusal } from '../http/refusal.ts'
import { authorizePages } from './authorize.ts'
import { checkoutPages } from './billing/checkout.ts'
import { connectionPages } from './billing/connection.ts'
import { invoicePages } from './billing/invoice.ts'
import { onboardingPages } from './billing/onboarding.ts'
import { statementPages } from './billing/statement.ts'
import { dashboardPages } from './dashboard.ts'
import { devicePages } from './device.ts'
import type { PagesDeps } from './forms.ts'
import { forgotPasswordPages } from './password/forgot.ts'
import { iconRoutes } from './icon.ts'
import { initiateLoginPages } from './initiate-login.ts'
import { invitationPages } from './invitations.ts'
import { loginPages } from './login.ts'
import { logoutPages } from './logout.ts'
import { sendPage } from '../http/page.ts'
import { paymentEndPages } from './billing/payment-end.ts'
import { providerPages } from './provider-login.ts'
import { mailPages } from './mail.ts'
import { resetPages } from './password/reset.ts'
import { signUpPages } from './password/sign-up.ts'
import { startPages } from './start.ts'

/** Adds the HTML pages, rendered here without scripts. Their errors are pages, too. */
export async function pageRoutes(
  app: App,
  { httpMetrics, ...deps }: PagesDeps & { httpMetrics: HttpMetrics },
): Promise<void> {
  await app.register(async (pages) => {
    pages.setErrorHandler<Error>(async (thrown, request, reply) => {
      const error = toRefusal(thrown, request.routeOptions.config.rules)
      if (reasons[error.reason].http >= 500) httpMetrics.failed(request, error)
      const { publicUrl } = deps
      return wantsPage(request.headers.accept, true)
        ? sendProblem(request, reply, error)
        : sendError(request, reply, { error, publicUrl })
    })
    if (deps.loginProvider) pages.addHook('onRequest', toRegisteredHost(deps.publicUrl))
    for (const addPages of [
      startPages,
      dashboardPages,
      iconRoutes,
      loginPages,
      invitationPages,
      providerPages,
      resetPages,
      forgotPasswordPages,
      signUpPages,
      mailPages,
      devicePages,
      initiateLoginPages,
      authorizePages,
      logoutPages,
      connectionPages,
      paymentEndPages,
      invoicePages,
      statementPages,
      ...(deps.hasSimulatedProcessor ? [checkoutPages, onboardingPages] : []),
    ])
      addPages(pages, deps)
  })
}

/**
 * Redirects a login through the provider to the host of its redirect URI; on another host its
 * cookie would be missing.
 */
const toRegisteredHost =
  (publicUrl: string) =>
  async (
    { routeOptions, headers: { host }, raw }: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply | undefined> => {
    const isOther =
      `http://${host}` !== publicUrl && ownOrigins(publicUrl).includes(`http://${host}`)
    return routeOptions.url === '/login/provider' && isOther
      ? reply.redirect(`${publicUrl}${raw.url}`, 302)
      : undefined
  }

function sendProblem(
  request: FastifyRequest,
  reply: FastifyReply,
  error: DomainError,
): FastifyReply {
  const { http: status } = reasons[error.reason]
  request.reason = error.reason
  if (status === 429 && !reply.hasHeader('retry-after')) void reply.header('retry-after', '600')
  if (status === 503) void reply.header('retry-after', '1')
  // 403 instead of 401, because a page has no authentication scheme to challenge with.
  const page = errorPage(error, request.correlationId)
  return sendPage(reply, { ...page, status: status === 401 ? 403 : status })
}
