import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startOwnPostgres } from '../../support/run/own-postgres.ts'
import { type KafkaCluster, startKafkaCluster } from '../clusters/kafka.ts'
import { type Outage, type Scenario, secondsOf } from '../run.ts'
import type { Random } from '../../support/random.ts'

const awayMs = 15_000

export const kafka: Scenario = {
  name: 'kafka',
  title: 'Kafka loses a broker',
  setup:
    'Three Kafka brokers (KRaft) with three copies of each partition, of which two must be in sync, and one PostgreSQL. ' +
    'Each broker is lost once.',
  start: async (stops, { folder, random }) => {
    const [cluster, database] = await Promise.all([
      startKafkaCluster(stops, { folder: join(folder, 'kafka'), count: 3 }),
      startOwnPostgres(),
    ])
    stops.push(database.stop)
    const first = random.below(3)
    return {
      databaseUrl: database.url,
      redisUrl: null,
      kafka: cluster,
      kafkaBrokers: cluster.brokers,
      outages: () =>
        [0, 1, 2]
          .map((turn) => (first + turn) % 3)
          .map((index) => lose(cluster, { index, random })),
    }
  },
}

/** Kills a broker at a random moment; later starts it again, and waits until it is in sync. */
function lose(cluster: KafkaCluster, { index, random }: { index: number; random: Random }): Outage {
  return {
    what: `broker ${index + 1} is killed (SIGKILL)`,
    writesWithinMs: 1_000,
    act: async () => {
      await sleep(random.below(3_000))
      const from = performance.now()
      await cluster.kill(index)
      return from
    },
    after: async () => {
      await sleep(awayMs)
      const began = performance.now()
      await cluster.restart(index)
      return { notes: [`it is in sync ${secondsOf(performance.now() - began)} after its restart`] }
    },
  }
}
