import type { Outbound } from '../lib/outbound/outbound.ts'
import { traceOutgoing } from '../lib/telemetry/tracing.ts'
import { toReadable } from '../lib/text/readable.ts'
import { type Now, toSeconds } from '../lib/time.ts'
import type { AttemptRecord, ClaimedDelivery } from './delivery-store.ts'
import { nextAttempt } from './schedule.ts'
import { type SigningSecret, signContent } from './signatures.ts'

export interface AttemptDeps {
  readonly outbound: Pick<Outbound, 'post'>
  readonly now: Now
}

/** Where and how an endpoint's deliveries are sent. */
export interface Target {
  readonly url: string
  readonly secrets: readonly SigningSecret[]
  readonly signal: AbortSignal
}

/** `isGone`: the endpoint wants no further deliveries. */
export type Attempt = AttemptRecord & { readonly isGone: boolean }

const responseMax = 1_024
const errorMax = 200
const gone = 410

/** Sends one delivery and returns the result, except when `target.signal` aborts: then null. */
export async function attempt(
  { outbound, now }: AttemptDeps,
  { url, secrets, signal }: Target,
  delivery: ClaimedDelivery,
): Promise<Attempt | null> {
  const { eventId: id, body } = delivery
  const timestamp = toSeconds(now())
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(body)),
    'user-agent': 'tollgate-webhooks/1',
    'webhook-id': id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': signContent(secrets, { id, timestamp, body }),
  }
  const start = performance.now()
  const send = (trace: Readonly<Record<string, string>>) =>
    outbound.post(url, { headers: { ...headers, ...trace }, body, signal })
  const answer = await traceOutgoing('POST webhook', send).then(
    ({ status, text }) => ({ status, text, error: isSuccess(status) ? null : faultOf(status) }),
    (error: unknown) => ({ status: null, text: null, error: `the endpoint ${messageOf(error)}` }),
  )
  if (answer.error !== null && signal.aborted) return null
  const durationMs = Math.round(performance.now() - start)
  const { error } = answer
  const isGone = answer.status === gone
  const dueAt =
    error === null || isGone ? null : nextAttempt(delivery.attempts, { ...delivery, at: now() })
  return {
    id: delivery.id,
    attempts: delivery.attempts,
    status: error === null ? 'delivered' : dueAt ? 'pending' : 'failed',
    dueAt,
    httpStatus: answer.status,
    durationMs,
    error: error === null ? null : toReadable(error).slice(0, errorMax),
    response: answer.text === null ? null : toExcerpt(answer.text),
    isGone,
  }
}

const isSuccess = (status: number): boolean => status >= 200 && status < 300

const faultOf = (status: number): string =>
  status >= 300 && status < 400
    ? `the endpoint answered ${status}; redirects are not followed`
    : `the endpoint answered ${status}`

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : 'cannot be reached'

/** The start of an answer, without characters that could mislead a reader. */
const toExcerpt = (text: string): string => toReadable(text.slice(0, responseMax))
