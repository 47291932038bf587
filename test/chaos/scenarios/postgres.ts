import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startKafkaCluster } from '../clusters/kafka.ts'
import { type PostgresCluster, startPostgresCluster } from '../clusters/postgres.ts'
import type { Outage, Scenario } from '../run.ts'
import type { Random } from '../../support/random.ts'

const kills = 5
const writesWithinMs = 15_000

export const postgres: Scenario = {
  name: 'postgres',
  title: 'PostgreSQL fails over',
  setup:
    'A Patroni cluster of three with synchronous replication (`deploy/patroni/patroni.yml`), three members of etcd, ' +
    'HAProxy with `deploy/haproxy/postgres.cfg`, and one Kafka broker.',
  start: async (stops, { folder, random }) => {
    const [cluster, kafka] = await Promise.all([
      startPostgresCluster(stops, join(folder, 'postgres')),
      startKafkaCluster(stops, { folder: join(folder, 'kafka'), count: 1 }),
    ])
    return {
      databaseUrl: cluster.url,
      redisUrl: null,
      kafka,
      kafkaBrokers: kafka.brokers,
      outages: () => Array.from({ length: kills }, () => kill(cluster, random)),
    }
  },
}

/** Kills the primary at a random moment. It returns as a replica before the next outage. */
function kill(cluster: PostgresCluster, random: Random): Outage {
  let restart = async (): Promise<void> => {}
  return {
    what: 'the primary and its Patroni are killed (SIGKILL)',
    writesWithinMs,
    act: async () => {
      await sleep(random.below(3_000))
      const from = performance.now()
      const killed = await cluster.killPrimary()
      restart = killed.restart
      return from
    },
    after: async () => {
      await restart()
      return {}
    },
  }
}
