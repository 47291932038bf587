import { randomUUID } from 'node:crypto'
import { basic } from '../../deploy/cli/client.ts'
import type { Payer } from '../bench/gate/paid-call-session.ts'
import type { Fleet } from './fleet.ts'

/** An app with users who pay, and its backend's credential. */
export interface SeededApp {
  readonly clientId: string
  readonly authorization: string
  readonly payers: readonly Payer[]
}

/** Enough for every run, in micro-dollars. */
export const starterMicros = 10n ** 12n
const atOnce = 16

export interface Seed {
  readonly userCount: number
  /** Whether the app is a customer's, whose account its calls charge, too. */
  readonly isCustomer: boolean
}

/** Creates an app with users on Starter, users on a plan with its own prices, and a key for each. */
export async function seedApp(fleet: Fleet, { userCount, isCustomer }: Seed): Promise<SeededApp> {
  const { operator } = fleet
  const { clientId, m2mClientId, m2mClientSecret } = await operator.apps.createApp({
    name: 'Rolling',
    ownerEmail: `${randomUUID()}@example.com`,
    ownerPassword: undefined,
    isCustomer,
    starterUsdMicros: String(starterMicros),
  })
  const { id: planId } = await operator.plans.createPlan({
    clientId,
    planJson: JSON.stringify({
      name: 'Pro',
      type: 'usage',
      includedUsdMicros: String(starterMicros),
      overageRateUsd: '0.0000015',
      capabilities: [],
    }),
  })
  const app = { clientId, authorization: basic(m2mClientId, m2mClientSecret) }
  const payers: Payer[] = []
  const names = Array.from({ length: userCount }, (_, i) => `user-${String(i).padStart(5, '0')}`)
  const createAll = async (): Promise<void> => {
    for (let name = names.pop(); name !== undefined; name = names.pop()) {
      payers.push(await createPayer(fleet, app, name))
      if (payers.length % 3 === 0) await subscribe(fleet, { clientId, name, planId })
    }
  }
  await Promise.all(Array.from({ length: atOnce }, createAll))
  return { ...app, payers }
}

async function createPayer(
  { platformUrl }: Fleet,
  { clientId, authorization }: Omit<SeededApp, 'payers'>,
  externalUserId: string,
): Promise<Payer> {
  const users = `${platformUrl}/api/v1/apps/${clientId}/users`
  await post(users, authorization, { externalUserId })
  const credential = await post(`${users}/${externalUserId}/keys`, authorization, {})
  return { credential: String(credential['apiKey']), authId: `${clientId}:${externalUserId}` }
}

const subscribe = (
  { operator }: Fleet,
  { clientId, name, planId }: { clientId: string; name: string; planId: string },
) =>
  operator.subscriptions.updateSubscription({
    clientId,
    externalUserId: name,
    planId,
    timing: 'immediate',
    idempotencyKey: randomUUID(),
    successUrl: undefined,
    cancelUrl: undefined,
  })

async function post(
  url: string,
  authorization: string,
  json: object,
): Promise<Readonly<Record<string, unknown>>> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { authorization, 'content-type': 'application/json' },
    body: JSON.stringify(json),
    signal: AbortSignal.timeout(20_000),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${url}: ${response.status} ${text}`)
  const answer: Record<string, unknown> = JSON.parse(text)
  return answer
}
