import { userId } from '../../platform/ids.ts'
import type { Destination, Entry, Outcome } from '../../platform/outbox/types.ts'
import type { Customer } from './backend.ts'
import { customerKey } from './catalog.ts'
import { customerKind } from './emit.ts'
import type { Failure } from './openmeter/http.ts'
import { textOf } from './openmeter/values.ts'

export interface CustomersDeps {
  readonly ensureCustomer: (customer: Customer, signal: AbortSignal) => Promise<Failure | null>
  readonly ready: () => boolean
}

const atOnce = 8

/** Makes sure that users have a customer of the backend which their usage is attributed to. */
export function createCustomersDestination({ ensureCustomer, ready }: CustomersDeps): Destination {
  const deliver = (entries: readonly Entry[], signal: AbortSignal): Promise<Outcome[]> =>
    Promise.all(
      entries.map(async (entry) => {
        const customer = customerOf(entry)
        if (!customer) return { kind: 'refused', why: 'the row cannot be read' }
        const failure = await ensureCustomer(customer, signal)
        return failure === null ? { kind: 'delivered' } : outcomeOf(failure)
      }),
    )

  return { kind: customerKind, itemsAtOnce: atOnce, bytesAtOnce: 64 * 1024, ready, deliver }
}

function outcomeOf({ kind, why, retryAfterMs }: Failure): Outcome {
  if (kind === 'refused') return { kind, why }
  if (kind === 'broken') return { kind: 'failed', why }
  return { kind: 'later', why, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) }
}

const nameLength = 256

function customerOf({ payload }: Entry): Customer | null {
  const value: unknown = parsed(payload.toString('utf8'))
  const user = textOf(value, 'userId')
  const name = textOf(value, 'name')
  const clientId = textOf(value, 'clientId')
  return user === null || name === null || clientId === null
    ? null
    : { key: customerKey(userId(user)), name: name.slice(0, nameLength).toWellFormed(), clientId }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
