import type { PoolClient } from 'pg'
import { Gauge, Histogram } from 'prom-client'
import { type Metrics, shareReads } from '../../lib/metrics.ts'
import type { Pool } from '../../lib/sql.ts'
import { type DatabaseServer, readServer } from './store.ts'

/** Metrics of the process's pool, and of the database as the process sees it. */
export function observeDatabase(pool: Pool, metrics: Metrics): void {
  observeUse(pool, metrics)
  const gauge = (name: string, help: string, value: () => number): void => {
    const registered: Gauge = new Gauge({
      name,
      help,
      registers: [metrics],
      collect: () => registered.set(value()),
    })
  }
  gauge(
    'tollgate_database_pool_max',
    'Most connections of the pool (DATABASE_POOL_MAX)',
    () => pool.options.max,
  )
  gauge(
    'tollgate_database_pool_used',
    'Connections in use by a statement or a transaction',
    () => pool.totalCount - pool.idleCount,
  )
  gauge(
    'tollgate_database_pool_waiting',
    'Statements and transactions that wait for a connection',
    () => pool.waitingCount,
  )
  observeServer(pool, metrics)
}

/** Measures how long a statement or transaction has its connection, by the events of the pool. */
function observeUse(pool: Pool, metrics: Metrics): void {
  const seconds = new Histogram({
    name: 'tollgate_database_use_duration_seconds',
    help: 'Time for which a statement or a transaction used its connection',
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
    registers: [metrics],
  })
  const starts = new WeakMap<PoolClient, number>()
  pool.on('acquire', (client) => void starts.set(client, performance.now()))
  pool.on('release', (_error, client) => {
    const start = starts.get(client)
    if (start !== undefined) seconds.observe((performance.now() - start) / 1000)
  })
}

/** Reads the server's figures at each scrape. If a read fails, they keep their values. */
function observeServer(pool: Pool, metrics: Metrics): void {
  const read = shareReads(() => readServer(pool))
  const gauge = (name: string, help: string, value: (server: DatabaseServer) => number): void => {
    const registered: Gauge = new Gauge({
      name,
      help,
      registers: [metrics],
      async collect() {
        const server = await read()
        if (server) registered.set(value(server))
      },
    })
  }
  gauge(
    'tollgate_database_connections',
    'Connections to the database server',
    ({ connections }) => connections,
  )
  gauge(
    'tollgate_database_connections_max',
    'Most connections that the database server accepts',
    (server) => server.connections_max,
  )
  gauge(
    'tollgate_database_longest_transaction_seconds',
    'Age of the oldest running transaction in this database',
    (server) => server.transaction_seconds,
  )
  gauge(
    'tollgate_database_lock_waits',
    'Connections of this database that wait for a lock',
    (server) => server.locks_waiting,
  )
  gauge('tollgate_database_size_bytes', 'Disk that this database uses', ({ bytes }) =>
    Number(bytes),
  )
}
