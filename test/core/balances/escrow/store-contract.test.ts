import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { escrowStore } from '../../../../core/balances/escrow/store.ts'
import { externalUserId, type UserKey } from '../../../../core/shared/ids.ts'
import { type World, createWorld } from '../../metering/harness.ts'
import { createMemoryDatabase } from './memory-database.ts'
import { createMemoryEscrowStore } from './memory-store.ts'
import { runStoreOperations, storeOperations } from './store-contract.ts'

let world: World
let users: UserKey[]
beforeAll(async () => {
  world = await createWorld()
  users = []
  for (const name of ['ada', 'bea']) {
    const { user } = await world.users.upsert(
      world.app.id,
      { externalUserId: externalUserId(name) },
      { name: 'test' },
    )
    users.push({ appId: user.appId, userId: user.id })
  }
  users.sort((a, b) => (a.userId < b.userId ? -1 : 1))
})
afterAll(() => world.stop())

describe("the escrow's stores", () => {
  it('give the same results in PostgreSQL and in memory', async () => {
    await fc.assert(
      fc.asyncProperty(storeOperations, async (operations) => {
        await world.pool.query(
          `truncate authorisations, early_tickets, leases, sidecars, sidecar_clocks, authorised_sessions`,
        )
        const database = createMemoryDatabase()
        const memory = createMemoryEscrowStore({ database, hasTicket: () => false })
        const inMemory = { store: memory.store, db: database.pool, users }
        const inPostgres = { store: escrowStore, db: world.pool, users }
        expect(await runStoreOperations(inPostgres, operations)).toEqual(
          await runStoreOperations(inMemory, operations),
        )
      }),
      { numRuns: 100 },
    )
  })
})
