import { createHash } from 'node:crypto'
import { decodeAnswer } from './answer.ts'
import type { Answer } from './answer.ts'
import type { Dialect } from '../dialect.ts'
import { writeJson } from '../wire/go-json.ts'
import type { Payment } from '../payment/payment.ts'
import { judgePrice } from '../payment/price-ceiling.ts'
import type { MaxPrice } from '../payment/price-ceiling.ts'
import { refusal } from '../refusal.ts'
import { writeState } from '../payment/state.ts'
import type { SessionState } from '../payment/state.ts'
import { toUnixSeconds } from '../wire/time.ts'
import type { WebhookClient, WebhookOptions } from './client.ts'

export type Authorizer = Readonly<{
  dialect: Dialect
  utcOffsetMinutes: number
  /** Undefined for a signer without a webhook, which signs every payment. */
  webhook: WebhookClient | undefined
  /** Identifies the webhook's URL and headers; the successor binds a cached permission to it. */
  policy: string
  countCall: () => void
}>

/** The headers of a gateway's request, and a signal that aborts when it disconnects. */
export type GatewayCall = Readonly<{
  headers: Readonly<Record<string, readonly string[]>>
  signal: AbortSignal
}>

export const toPolicy = ({ url, headers }: Pick<WebhookOptions, 'url' | 'headers'>): string =>
  createHash('sha256')
    .update(JSON.stringify([url, headers]))
    .digest('hex')

/** Whether an earlier answer still covers this call (docs/signer-answers.md, "Expiry"). */
function stillPermitted(payment: Payment, { dialect, policy }: Authorizer): boolean {
  const { authExpiry, authPolicy } = payment.state
  const now = toUnixSeconds(payment.now)
  if (authExpiry === 0n) return false
  if (dialect.successor && authPolicy !== policy) return false
  return dialect.expiryInclusive ? now <= authExpiry : now < authExpiry
}

async function ask(webhook: WebhookClient, body: string, signal: AbortSignal): Promise<Answer> {
  const { status, text } = await webhook.post(body, signal)
  if (status !== 200) throw new Error(`the webhook answered HTTP ${status}`)
  return decodeAnswer(text)
}

function refuseAs(answer: Answer, { successor, webhookFailure }: Dialect): never {
  const { status, reason } = answer
  if (successor && (status < 400 || status > 599)) {
    throw refusal(webhookFailure, `the webhook refused with the invalid status ${status}`)
  }
  const generated = `remote signer webhook rejected with status ${status}`
  throw refusal(status, reason === '' ? generated : reason)
}

function checkCeiling(payment: Payment, ceiling: MaxPrice | undefined): void {
  const verdict = judgePrice(payment.price, payment.state.type, ceiling)
  if (verdict === 'malformed') throw refusal(502, 'the webhook answered an invalid maxPrice')
  if (verdict === 'exceeded') throw refusal(481, 'the orchestrator price exceeds maxPrice')
}

function bindIdentity(state: SessionState, candidate: string, dialect: Dialect): string {
  if (candidate === '') return state.authId
  if (state.authId !== '' && state.authId !== candidate) {
    throw refusal(dialect.identityChanged, 'the identity of the session has changed')
  }
  return candidate
}

type WebhookAuthorizer = Authorizer & Readonly<{ webhook: WebhookClient }>

async function decide(
  payment: Payment,
  call: GatewayCall,
  signer: WebhookAuthorizer,
): Promise<Answer> {
  const { dialect, webhook } = signer
  const state = writeState(payment.state, signer)
  signer.countCall()
  const body = writeJson({ headers: call.headers, state })
  const answer = await ask(webhook, body, call.signal).catch((error: unknown) => {
    throw refusal(dialect.webhookFailure, `webhook failed: ${String(error)}`)
  })
  return answer.status === 200 ? answer : refuseAs(answer, dialect)
}

/**
 * Returns the payment's state after the webhook, or its earlier permission, has allowed it: stores
 * the expiry, checks the price ceiling and binds the identity, in this order.
 */
export async function authorize(
  payment: Payment,
  call: GatewayCall,
  signer: Authorizer,
): Promise<SessionState> {
  const { dialect, webhook } = signer
  const header = call.headers['Signer-Auth-Id']?.[0] ?? ''
  const { state } = payment
  if (webhook === undefined || stillPermitted(payment, signer)) {
    if (dialect.successor) checkCeiling(payment, state.authMaxPrice)
    return { ...state, authId: bindIdentity(state, header, dialect) }
  }
  const answer = await decide(payment, call, { ...signer, webhook })
  if (dialect.knowsApp) checkCeiling(payment, answer.maxPrice)
  const candidate = answer.authId === '' ? header : answer.authId
  return {
    ...state,
    authExpiry: answer.expiry,
    authMaxPrice: answer.maxPrice,
    authPolicy: signer.policy,
    authId: bindIdentity(state, candidate, dialect),
  }
}
