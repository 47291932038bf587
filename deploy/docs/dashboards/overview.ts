import { type Dashboard, perSecond, quantiles } from './dashboard.ts'

const unavailable = 'rate_unavailable|billing_unavailable|authorization_unavailable'

export const overviewDashboard: Dashboard = {
  uid: 'overview',
  title: 'overview',
  text: 'Does the service work, and which dashboard shows why not?',
  rows: [
    [
      {
        title: 'Firing alerts',
        text: 'Alerts of deploy/alerts.yml that fire now. Normal: 0.',
        queries: { alerts: 'count(ALERTS{alertstate="firing"}) or vector(0)' },
        unit: 'short',
        isNumber: true,
        limits: [1, 2],
      },
      {
        title: 'Processes down',
        text: 'Targets of Prometheus that do not answer. Normal: 0.',
        queries: { processes: 'count(up) - sum(up)' },
        unit: 'short',
        isNumber: true,
        limits: [1, 1],
        alert: 'TollgateDown',
      },
      {
        title: 'Calls refused by faults',
        text: 'Share of decisions that are 503 because a part does not answer. Users with money are refused. Normal: 0.',
        queries: {
          share: `sum(rate(tollgate_sidecar_decisions_total{decision=~"${unavailable}"}[5m])) / (sum(rate(tollgate_sidecar_decisions_total[5m])) > 0) or vector(0)`,
        },
        unit: 'percentunit',
        isNumber: true,
        limits: [0.001, 0.01],
        alert: 'TollgateDecisionsUnavailable',
      },
      {
        title: 'Requests unavailable',
        text: "Share of the gateway's responses with 502 to 504. Normal: 0.",
        queries: {
          share:
            'sum(rate(tollgate_gateway_responses_total{result="unavailable"}[5m])) / (sum(rate(tollgate_gateway_responses_total[5m])) > 0) or vector(0)',
        },
        unit: 'percentunit',
        isNumber: true,
        limits: [0.005, 0.02],
        alert: 'TollgateGatewayUnavailable',
      },
      {
        title: 'Ingest lag',
        text: 'Age of the oldest event that was received and is not booked. Normal: below 5 s.',
        queries: { lag: 'max(tollgate_metering_lag_seconds)' },
        unit: 's',
        isNumber: true,
        limits: [10, 60],
        alert: 'TollgateEventsWait',
      },
      {
        title: 'Overdue invoices',
        text: 'Invoices whose charge has failed; charged again by plan. At most five minutes old.',
        queries: {
          owed: 'sum(max by (payee) (tollgate_billing_owed_usd{plane="live",kind="overdue"}))',
        },
        unit: 'currencyUSD',
        isNumber: true,
      },
    ],
    [
      {
        title: 'Decisions',
        text: 'Answers of the sidecars to the signer, by code. `ok` allows a call; codes of money and limits are normal refusals.',
        queries: perSecond('tollgate_sidecar_decisions_total', 'decision'),
        unit: 'reqps',
        alert: 'TollgateDecisionsUnavailable',
      },
      {
        title: 'Duration of decisions',
        text: 'From the complete request to its response. A warm decision takes less than a millisecond.',
        queries: quantiles('tollgate_sidecar_decision_duration_seconds'),
        unit: 's',
        limits: [0.1, 0.5],
        alert: 'TollgateDecisionsSlow',
      },
      {
        title: 'Requests to the gateway',
        text: 'Responses by result. `refused` is 4xx, `unavailable` 502 to 504, `failed` every other 5xx.',
        queries: perSecond('tollgate_gateway_responses_total', 'result'),
        unit: 'reqps',
        alert: 'TollgateGatewayFails',
      },
    ],
    [
      {
        title: 'Events',
        text: 'Events from the signers by outcome. `duplicate` is normal, `quarantined` needs a decision.',
        queries: perSecond('tollgate_metering_events_total', 'outcome'),
        unit: 'short',
        alert: 'TollgateEventsQuarantined',
      },
      {
        title: 'What waits',
        text: 'Age of the oldest item of each queue. All are near 0 in a healthy service.',
        queries: {
          ingest: 'max(tollgate_metering_lag_seconds)',
          spool: 'max(tollgate_sidecar_spool_oldest_event_age_seconds)',
          outbox: 'max(tollgate_outbox_age_seconds)',
          webhooks: 'max(tollgate_webhook_lag_seconds)',
          'processor events': 'max(tollgate_billing_processor_events_age_seconds)',
          collections: 'max(tollgate_billing_collections_age_seconds)',
        },
        unit: 's',
        limits: [60, 300],
        alert: 'TollgateOutboxStuck',
      },
      {
        title: 'Held money',
        text: 'Lent to sidecars, the part of it under ended leases, and pending until tickets arrive.',
        queries: { '{{kind}}': 'max by (kind) (tollgate_escrow_held_usd)' },
        unit: 'currencyUSD',
        alert: 'TollgateEventsMissing',
      },
    ],
    [
      {
        title: 'Periodic work: time since its last success',
        text: 'The five pieces of work that succeeded longest ago. Work with long pauses is normal up to its pause.',
        queries: {
          '{{loop}} {{instance}}': 'topk(5, time() - tollgate_loop_success_timestamp_seconds)',
        },
        unit: 's',
        alert: 'TollgateLoopFails',
      },
      {
        title: 'Failures of periodic work',
        text: 'Failed rounds per minute. Single failures while a part restarts are normal.',
        queries: {
          '{{loop}}': 'sum by (loop) (rate(tollgate_loop_failures_total[$__rate_interval])) * 60',
        },
        unit: 'short',
        alert: 'TollgateLoopFails',
      },
      {
        title: 'Delay of the event loop',
        text: 'The slowest hundredth of the turns of each Node.js process. Above 100 ms, a processor is too busy.',
        queries: { '{{instance}}': 'max by (instance) (nodejs_eventloop_lag_p99_seconds)' },
        unit: 's',
        limits: [0.1, 0.5],
      },
    ],
    [
      {
        title: 'Processor',
        text: 'Cores that each process uses. A process can hardly use more than one.',
        queries: {
          '{{instance}}': 'sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval]))',
        },
        unit: 'short',
        limits: [0.8, 1],
      },
      {
        title: 'Memory',
        text: 'Resident memory of each process.',
        queries: { '{{instance}}': 'max by (instance) (process_resident_memory_bytes)' },
        unit: 'bytes',
      },
      {
        title: 'Heap',
        text: 'Used heap of each process. A line that only rises is a leak.',
        queries: { '{{instance}}': 'max by (instance) (nodejs_heap_size_used_bytes)' },
        unit: 'bytes',
      },
    ],
  ],
}
