import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import type { App } from '../http/app.ts'
import { scopeList } from './authorization-request.ts'
import { type PagesDeps, field, formRoute, pageRoute, parameter } from './forms.ts'
import type { Reservation } from '../limits/counters.ts'
import { hidden, html, problem, sendPage } from '../http/page.ts'
import { type Visitor, readSender, toLogin, readVisitor } from './visitor.ts'

/** Wrong codes per account in ten minutes, over all its sessions (RFC 8628 section 5.1). */
const wrongMax = 5
const windowSeconds = 600
const codeMax = 64
const actions = new Set(['lookup', 'approve', 'deny'])

/**
 * Adds the verification page. A code takes effect only after a click, even if it was part of the
 * link (RFC 8628 section 5.4).
 */
export function devicePages(app: App, { publicUrl, counters }: PagesDeps): void {
  app.get('/oidc/device', pageRoute(), async (request, reply) => {
    const code = parameter(request, 'user_code')?.slice(0, codeMax)
    const visitor = await readVisitor(request, publicUrl)
    if (!visitor)
      return toLogin(
        reply,
        `/oidc/device${code === undefined ? '' : `?user_code=${encodeURIComponent(code)}`}`,
      )
    return askForCode(reply, { visitor, code })
  })

  app.post('/oidc/device', formRoute(), async (request, reply) => {
    const visitor = await readSender(request, publicUrl)
    const action = field(request, 'action') ?? 'lookup'
    const code = (field(request, 'user_code') ?? '').trim().slice(0, codeMax)
    if (code === '')
      return askForCode(reply, { visitor, wrong: 'Enter the code that your device shows.' })
    if (!actions.has(action))
      throw new DomainError('REQUEST_INVALID', 'action must be lookup, approve or deny')
    const attempt = await countAttempt(reply, visitor)
    try {
      const answer =
        action === 'lookup'
          ? await showDevice(request, reply, { visitor, code })
          : await decide(request, reply, { visitor, code, action })
      attempt.takeBack()
      return answer
    } catch (error) {
      const wrong = error instanceof DomainError ? codeProblems[error.reason] : undefined
      if (wrong !== undefined) return askForCode(reply, { visitor, wrong })
      attempt.takeBack()
      throw error
    }
  })

  /**
   * Counts the code as wrong before it is looked up, so that parallel guesses count as well. Throws
   * RATE_LIMITED after too many.
   */
  async function countAttempt(reply: FastifyReply, { accountId }: Visitor): Promise<Reservation> {
    const attempt = await counters.reserve(`device-code:${accountId}`, windowSeconds)
    if (attempt.sum <= wrongMax) return attempt
    attempt.takeBack()
    const seconds = counters.resetSeconds(windowSeconds)
    void reply.header('retry-after', String(seconds))
    throw new DomainError('RATE_LIMITED', `too many wrong codes; try again in ${seconds} s`)
  }

  async function showDevice(
    request: FastifyRequest,
    reply: FastifyReply,
    { visitor, code }: DeviceDecision,
  ): Promise<FastifyReply> {
    const device = await request.core.devices.getDevice({
      sessionToken: visitor.token,
      userCode: code,
    })
    const theme = { name: device.appName, color: device.appColor }
    const content = html`
<h1>Connect a device to ${device.appName}?</h1>
<p>Allow this only if your own device shows this code now:</p>
<p class="code-shown">${device.userCode}</p>
<p>You are logged in as ${visitor.email}. The device will be able to:</p>
${scopeList(device.scopes)}
<form method="post" action="/oidc/device">
${hidden({ csrf_token: visitor.csrfToken, user_code: device.userCode })}
<button name="action" value="approve">Connect the device</button>
<button name="action" value="deny" class="quiet">This is not mine</button>
</form>`
    return sendPage(reply, { title: 'Connect a device', content, theme })
  }

  async function decide(
    request: FastifyRequest,
    reply: FastifyReply,
    { visitor, code, action }: DeviceDecision & { action: string },
  ): Promise<FastifyReply> {
    const { appName: name, appColor: color } = await request.core.devices.getDevice({
      sessionToken: visitor.token,
      userCode: code,
    })
    const { status } = await request.core.devices.decideDevice({
      sessionToken: visitor.token,
      userCode: code,
      action,
    })
    const content =
      status === 'authorized'
        ? html`<h1>The device is connected</h1><p>It continues in a few seconds. You can close this page.</p>`
        : html`<h1>The device was refused</h1><p>Nothing was connected. You can close this page.</p>`
    return sendPage(reply, {
      title: status === 'authorized' ? 'Connected' : 'Refused',
      content,
      theme: { name, color },
    })
  }
}

interface DeviceDecision {
  readonly visitor: Visitor
  readonly code: string
}

const codeProblems: Readonly<Partial<Record<string, string>>> = {
  GRANT_INVALID: 'This code is wrong, or was used already. Compare it with your device.',
  DEVICE_CODE_EXPIRED: 'This code has expired. Start again on your device.',
}

function askForCode(
  reply: FastifyReply,
  { visitor, code, wrong }: { visitor: Visitor; code?: string | undefined; wrong?: string },
): FastifyReply {
  const content = html`
<h1>Connect a device</h1>
<p>Enter the code that your device shows.</p>
${problem(wrong)}
<form method="post" action="/oidc/device">
${hidden({ csrf_token: visitor.csrfToken })}
<label for="code">Code</label>
<input id="code" class="code" name="user_code" autocomplete="off" autocapitalize="characters" spellcheck="false" required maxlength="${codeMax}" value="${code ?? ''}">
<button name="action" value="lookup">Continue</button>
</form>
<p class="small">You are logged in as ${visitor.email}.</p>`
  return sendPage(reply, {
    title: 'Connect a device',
    content,
    status: wrong === undefined ? 200 : 400,
  })
}
