import { isObject, parseJson } from '../../lib/json.ts'
import { type Email, normalizeEmail } from '../../lib/text/email.ts'
import type { Delivery, Destination, Entry, NewEntry } from '../../shared/outbox/types.ts'

/** A person's request for a mailed link: to set a new password, or to create an account. */
export interface LinkRequest {
  readonly id: string
  readonly email: Email
  readonly correlationId?: string | undefined
}

/** The kinds of these entries in the outbox. */
export type LinkRequestKind = 'password_reset' | 'sign_up'

const entriesAtOnce = 20

export const packRequest = (kind: LinkRequestKind, request: LinkRequest): NewEntry => ({
  kind,
  payload: Buffer.from(JSON.stringify(request)),
  itemCount: 1,
})

function readRequest({ payload }: Entry): LinkRequest | null {
  const value = parseJson(payload.toString('utf8'))
  if (!isObject(value)) return null
  const { id, email, correlationId } = value
  const address = typeof email === 'string' ? normalizeEmail(email) : null
  if (typeof id !== 'string' || address === null) return null
  return {
    id,
    email: address,
    correlationId: typeof correlationId === 'string' ? correlationId : undefined,
  }
}

export type DeliverRequests = ReturnType<typeof createLinkRequests>

/** Returns a function that delivers requests of the outbox to `mail`, one by one. */
export function createLinkRequests(mail: (request: LinkRequest) => Promise<void>) {
  async function deliverOne(entry: Entry): Promise<Delivery> {
    const request = readRequest(entry)
    if (!request) return { kind: 'refused', why: 'the row cannot be read' }
    return mail(request).then(
      () => ({ kind: 'delivered' }),
      (error: unknown) => ({
        kind: 'failed',
        why: error instanceof Error ? error.message : 'failed',
      }),
    )
  }

  return async (entries: readonly Entry[]): Promise<Delivery[]> => {
    const deliveries: Delivery[] = []
    for (const entry of entries) deliveries.push(await deliverOne(entry))
    return deliveries
  }
}

/** The destination of requests in the outbox. */
export const linkRequestDestination = (
  kind: LinkRequestKind,
  deliver: () => DeliverRequests,
): Destination => ({
  kind,
  itemsAtOnce: entriesAtOnce,
  bytesAtOnce: 64 * 1024,
  ready: () => true,
  deliver: (entries) => deliver()(entries),
})
