import { setTimeout as sleep } from 'node:timers/promises'
import { Type } from 'typebox'
import { DomainError } from '../../../proto/errors.ts'
import { type Reloadable, currentValue } from '../../../core/lib/settings/reloadable.ts'
import type { CoreCalls } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { textMember } from '../../http/body.ts'
import { internalTag, post } from '../../http/endpoint.ts'
import { CorrelationId, addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, required } from '../schemas.ts'
import { webhookUrl } from './webhook.ts'

const TestCall = named(
  Type.Object({
    status: Type.Integer({ description: "The decision's status: 200, or why not." }),
    code: Type.String({ description: 'ok, or the code of the refusal.' }),
    reason: Type.String({ description: "The text for the signer's client; empty for 200." }),
    decision: Type.String({ description: 'Id of the decision; empty if it was not recorded.' }),
    explanation: Type.Array(Type.String(), {
      description: 'The decision explained in sentences; empty if it was not recorded in time.',
    }),
    durationMs: Type.Integer({ description: 'Duration of the call to the webhook.' }),
    correlation_id: CorrelationId,
  }),
  'TestCall',
)

// A sidecar sends its records once a second.
const explanationTries = 12
const explanationPauseMs = 250

interface TestCallDeps {
  /** Secrets that the webhook of this process accepts; absent if it has no webhook. */
  readonly webhookSecrets?: Reloadable<readonly string[]> | undefined
}

/**
 * The signer's question about a user, started by a member of the app. It goes through the webhook of
 * this process, as the signer's does. Without a payment session it signs and charges nothing.
 */
export function testCallRoutes(app: App, { webhookSecrets }: TestCallDeps): void {
  addSchemas(app, [TestCall])
  post({
    url: '/api/v1/internal/apps/:clientId/signer/test-call',
    guard: { kind: 'member_edit' },
    limit: 'token',
    refuses: ['CONFLICT'],
    operationId: 'createTestCall',
    summary: 'Ask the signer webhook about a user',
    description:
      "Sends the request that a remote signer sends to the identity webhook, with a token of a minute for the user and without a payment session. Nothing is signed or charged. Returns the webhook's answer with its explanation. It is refused with 409 if the sidecars run in other processes.",
    tags: [internalTag, 'apps'],
    params: AppParams,
    body: Type.Object(
      { externalUserId: required('The user of the call.') },
      { additionalProperties: false },
    ),
    response: { 200: ref(TestCall) },
    handler: async ({ params, body, core, correlationId }) => {
      const { accessToken } = await core.tokens.mintTestToken({ ...params, ...body })
      const [secret] = currentValue(webhookSecrets) ?? []
      if (secret === undefined)
        throw new DomainError(
          'CONFLICT',
          'the webhook runs in another process, which only the signer calls; send the call from there',
        )
      const startedAt = performance.now()
      const answer = await askWebhook(app, { secret, accessToken })
      const durationMs = Math.round(performance.now() - startedAt)
      const explanation = await explain(core, params.clientId, answer.decision)
      return { ...answer, explanation, durationMs, correlation_id: correlationId }
    },
  })(app)
}

interface TestQuestion {
  readonly secret: string
  readonly accessToken: string
}

/** Sends the question through the routes of this listener. */
async function askWebhook(app: App, { secret, accessToken }: TestQuestion) {
  const headers = { Authorization: [`Bearer ${accessToken}`], 'X-Tollgate-Explain': ['1'] }
  const { statusCode, body } = await app.inject({
    method: 'POST',
    url: webhookUrl,
    headers: { 'content-type': 'application/json', authorization: `Bearer ${secret}` },
    payload: JSON.stringify({ headers }),
  })
  if (statusCode !== 200) throw new DomainError('UNAVAILABLE', `the webhook answered ${statusCode}`)
  const decision: unknown = JSON.parse(body)
  const status = Number(Object(decision).status)
  return {
    status,
    code: textMember(decision, 'code') ?? (status === 200 ? 'ok' : 'unknown'),
    reason: textMember(decision, 'reason') ?? '',
    decision: textMember(decision, 'decision') ?? '',
  }
}

/** Waits until core has the record of the decision. */
async function explain(core: CoreCalls, clientId: string, decisionId: string): Promise<string[]> {
  if (decisionId === '') return []
  for (let tries = 0; tries < explanationTries; tries++) {
    await sleep(explanationPauseMs)
    const record = await core.decisions.getDecision({ clientId, decisionId }).catch(ignoreMissing)
    if (record) return record.explanation
  }
  return []
}

function ignoreMissing(error: unknown): null {
  if (error instanceof DomainError && error.reason === 'NOT_FOUND') return null
  throw error
}
