import type { FastifyReply, FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import { DomainError } from '../../proto/errors.ts'
import type { App } from '../http/app.ts'
import { scopeList } from './authorization-request.ts'
import { type PagesDeps, field, formRoute, pageRoute, parameter } from './forms.ts'
import { hidden, html, problem, sendPage } from './page.ts'
import { type Visitor, senderOf, toLogin, visitorOf } from './visitor.ts'

/** Wrong codes of one account in ten minutes, in whichever sessions (RFC 8628 section 5.1). */
const attemptLimit = { max: 5, windowMs: 600_000 }
const codeMax = 64

/** The verification page. A code decides nothing without a click, even when it came with the link (RFC 8628 section 5.4). */
export function devicePages(app: App, { publicUrl }: PagesDeps): void {
  const attempts = createAttempts(attemptLimit)

  app.get('/oidc/device', pageRoute(), async (request, reply) => {
    const code = parameter(request, 'user_code')?.slice(0, codeMax)
    const visitor = await visitorOf(request, publicUrl)
    if (!visitor)
      return toLogin(
        reply,
        `/oidc/device${code === undefined ? '' : `?user_code=${encodeURIComponent(code)}`}`,
      )
    return askForCode(reply, { visitor, code })
  })

  app.post('/oidc/device', formRoute(), async (request, reply) => {
    const visitor = await senderOf(request, publicUrl)
    const action = field(request, 'action') ?? 'lookup'
    const code = (field(request, 'user_code') ?? '').trim().slice(0, codeMax)
    if (code === '')
      return askForCode(reply, { visitor, wrong: 'Enter the code that your device shows.' })
    const name = visitor.accountId
    attempts.requireBelowLimit(name)
    try {
      if (action === 'lookup') return await showDevice(request, reply, { visitor, code })
      if (action === 'approve' || action === 'deny')
        return await decide(request, reply, { visitor, code, action })
    } catch (error) {
      const wrong = error instanceof DomainError ? codeProblems[error.reason] : undefined
      if (wrong === undefined) throw error
      attempts.addFailure(name)
      return askForCode(reply, { visitor, wrong })
    }
    throw new DomainError('REQUEST_INVALID', 'action must be lookup, approve or deny')
  })

  async function showDevice(
    request: FastifyRequest,
    reply: FastifyReply,
    { visitor, code }: DeviceDecision,
  ): Promise<FastifyReply> {
    const device = await request.core.devices.get({ sessionToken: visitor.token, userCode: code })
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
    const { appName: name, appColor: color } = await request.core.devices.get({
      sessionToken: visitor.token,
      userCode: code,
    })
    const { status } = await request.core.devices.decide({
      sessionToken: visitor.token,
      userCode: code,
      action,
    })
    const content =
      status === 'authorized'
        ? html`<h1>The device is connected</h1><p>It goes on by itself in a few seconds. You can close this page.</p>`
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
  GRANT_INVALID: 'This code is not known, or was used already. Look at your device again.',
  DEVICE_CODE_EXPIRED: 'This code is too old. Start again on your device.',
}

/** Counts failures by name; RATE_LIMITED after `max` within the window. Keeps the last ten thousand names. */
export function createAttempts({ max, windowMs }: { max: number; windowMs: number }) {
  const failures = new LRUCache<string, number>({ max: 10_000, ttl: windowMs })

  function requireBelowLimit(name: string): void {
    if ((failures.get(name) ?? 0) < max) return
    throw new DomainError('RATE_LIMITED', 'too many wrong codes; wait ten minutes')
  }

  /** The window begins with the first failure. */
  function addFailure(name: string): void {
    const count = failures.get(name)
    failures.set(
      name,
      (count ?? 0) + 1,
      count === undefined ? {} : { ttl: failures.getRemainingTTL(name) },
    )
  }

  return { requireBelowLimit, addFailure }
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
