import type { Core } from '../../core/client.ts'
import { toPlan, toProduct } from './render.ts'

/**
 * Caches rendered lists of plans by app and form, each with its version from core. Reading and
 * rendering a list of a thousand plans, over a megabyte, takes thirty times as long as a query
 * whether it has changed (`plan-list` in `npm run bench`). The plain version loads the plans each
 * time.
 */
export interface List {
  /** JSON. */
  readonly bytes: Buffer
  readonly version: string
}

const bytesMax = 32 * 1024 * 1024

type Plans = ReturnType<Core['callsFor']>['plans']

interface ListQuery {
  readonly clientId: string
  readonly isProducts: boolean
  /** Writes the list as JSON. */
  serialize(list: Readonly<Record<string, unknown>>): string
}

export function createPlanLists() {
  const lists = new Map<string, List>()
  let size = 0

  /** Returns the current list. Core checks the version and whether the caller may see it. */
  async function read(plans: Plans, { clientId, isProducts, serialize }: ListQuery): Promise<List> {
    const key = `${isProducts ? 'products' : 'plans'} ${clientId}`
    const known = lists.get(key)
    const answer = await plans.listPlans({ clientId, knownVersion: known?.version })
    if (answer.isKnown && known) return known
    const body = isProducts
      ? { apiVersion: 2, products: answer.plans.map(toProduct) }
      : answer.plans.map(toPlan)
    const list = { bytes: Buffer.from(serialize(Object(body))), version: answer.version }
    keep(key, list)
    return list
  }

  function keep(key: string, list: List): void {
    drop(key)
    lists.set(key, list)
    size += list.bytes.length
    // Evict in insertion order.
    for (const oldest of lists.keys()) {
      if (size <= bytesMax) return
      drop(oldest)
    }
  }

  function drop(key: string): void {
    size -= lists.get(key)?.bytes.length ?? 0
    lists.delete(key)
  }

  return { read }
}
