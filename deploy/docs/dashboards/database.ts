import { type Dashboard, perSecond, quantiles } from './dashboard.ts'

const rpc = 'tollgate_core_rpc_duration_seconds'

export const databaseDashboard: Dashboard = {
  uid: 'database',
  title: 'database',
  text: 'Does the database keep up, and which part of core is slow?',
  rows: [
    [
      {
        title: 'Waiting for a connection',
        text: 'Statements and transactions that wait in the pool of a process. Normal: 0.',
        queries: { waiting: 'max(tollgate_database_pool_waiting)' },
        unit: 'short',
        isNumber: true,
        limits: [1, 10],
        alert: 'TollgateDatabasePoolFull',
      },
      {
        title: 'Pool in use',
        text: 'Share of DATABASE_POOL_MAX that the busiest process uses.',
        queries: { share: 'max(tollgate_database_pool_used / tollgate_database_pool_max)' },
        unit: 'percentunit',
        isNumber: true,
        limits: [0.8, 1],
        alert: 'TollgateDatabasePoolFull',
      },
      {
        title: 'Connections of the server',
        text: 'Share of max_connections that is open.',
        queries: {
          share: 'max(tollgate_database_connections) / max(tollgate_database_connections_max)',
        },
        unit: 'percentunit',
        isNumber: true,
        limits: [0.8, 0.9],
        alert: 'TollgateDatabaseConnectionsFew',
      },
      {
        title: 'Longest transaction',
        text: 'Age of the oldest running transaction. Long ones stop the cleaning of dead rows.',
        queries: { age: 'max(tollgate_database_longest_transaction_seconds)' },
        unit: 's',
        isNumber: true,
        limits: [300, 3_600],
        alert: 'TollgateTransactionLong',
      },
      {
        title: 'Waiting for a lock',
        text: 'Connections that wait for another transaction.',
        queries: { connections: 'max(tollgate_database_lock_waits)' },
        unit: 'short',
        isNumber: true,
        limits: [5, 20],
      },
      {
        title: 'Size',
        text: 'Disk that the database uses, without its log.',
        queries: { size: 'max(tollgate_database_size_bytes)' },
        unit: 'bytes',
        isNumber: true,
        alert: 'TollgateDiskFills',
      },
    ],
    [
      {
        title: 'Time that connections are used',
        text: 'By one statement or one transaction. A slow database shows here first.',
        queries: quantiles('tollgate_database_use_duration_seconds'),
        unit: 's',
        limits: [0.25, 1],
        alert: 'TollgateDatabasePoolFull',
      },
      {
        title: 'Statements and transactions',
        text: 'Uses of a connection per second, by process.',
        queries: {
          '{{instance}}':
            'sum by (instance) (rate(tollgate_database_use_duration_seconds_count[$__rate_interval]))',
        },
        unit: 'short',
      },
      {
        title: 'Pools',
        text: 'Connections in use and waiting callers, by process, and the limit of one process.',
        queries: {
          '{{instance}} used': 'max by (instance) (tollgate_database_pool_used)',
          '{{instance}} waiting': 'max by (instance) (tollgate_database_pool_waiting)',
          limit: 'min(tollgate_database_pool_max)',
        },
        unit: 'short',
        alert: 'TollgateDatabasePoolFull',
      },
    ],
    [
      {
        title: 'Slowest RPCs, p99',
        text: 'The slowest hundredth of the calls of the eight slowest RPCs.',
        queries: {
          '{{rpc}}': `topk(8, histogram_quantile(0.99, sum by (le, rpc) (rate(${rpc}_bucket[$__rate_interval]))))`,
        },
        unit: 's',
        limits: [0.5, 2],
      },
      {
        title: 'RPCs with the most work',
        text: 'Seconds of work per second of the eight RPCs that take the most.',
        queries: { '{{rpc}}': `topk(8, sum by (rpc) (rate(${rpc}_sum[$__rate_interval])))` },
        unit: 'short',
      },
      {
        title: 'Answers of core by reason',
        text: 'OK, and the reasons of refusals. INTERNAL is a fault, UNAVAILABLE an outage.',
        queries: { '{{reason}}': `sum by (reason) (rate(${rpc}_count[$__rate_interval]))` },
        unit: 'reqps',
        alert: 'TollgateGatewayUnavailable',
      },
    ],
    [
      {
        title: 'Connections and locks',
        text: 'Open connections, their limit, and connections that wait for a lock.',
        queries: {
          open: 'max(tollgate_database_connections)',
          limit: 'max(tollgate_database_connections_max)',
          'waiting for a lock': 'max(tollgate_database_lock_waits)',
        },
        unit: 'short',
        alert: 'TollgateDatabaseConnectionsFew',
      },
      {
        title: 'Longest transaction, and replica',
        text: 'Age of the oldest running transaction, and of the data of the replica (DATABASE_READ_URL).',
        queries: {
          transaction: 'max(tollgate_database_longest_transaction_seconds)',
          'replica of {{instance}}': 'max by (instance) (tollgate_core_replica_lag_seconds)',
        },
        unit: 's',
        alert: 'TollgateTransactionLong',
      },
      {
        title: 'Reads of usage',
        text: 'Which database answered. With a replica, reads of the primary mean that it lags.',
        queries: perSecond('tollgate_core_reads_total', 'source'),
        unit: 'reqps',
      },
      {
        title: 'Size',
        text: 'Disk that the database uses. RETENTION_MONTHS and the archive bound it.',
        queries: { size: 'max(tollgate_database_size_bytes)' },
        unit: 'bytes',
        alert: 'TollgateDiskFills',
      },
    ],
  ],
}
