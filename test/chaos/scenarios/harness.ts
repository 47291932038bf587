import { setTimeout as sleep } from 'node:timers/promises'
import { startOwnPostgres } from '../../support/run/own-postgres.ts'
import type { Scenario } from '../run.ts'

/** No outage: shows in a minute that the load works, and that the checks find planted damage. */
export const harness: Scenario = {
  name: 'harness',
  title: 'Nothing is broken',
  setup: 'One PostgreSQL, no Kafka and no Redis: both signers push their events to the sidecars.',
  start: async (stops) => {
    const database = await startOwnPostgres()
    stops.push(database.stop)
    const nothing = {
      what: 'nothing',
      writesWithinMs: 1_000,
      act: async () => {
        await sleep(1_000)
        return performance.now()
      },
    }
    return { databaseUrl: database.url, redisUrl: null, kafka: null, outages: () => [nothing] }
  },
}
