import { type Dashboard, perSecond, quantiles } from './dashboard.ts'

export const ingestDashboard: Dashboard = {
  uid: 'ingest',
  title: 'ingest',
  text: 'Do events arrive, become tickets, get a price, and reach other systems?',
  rows: [
    [
      {
        title: 'Lag',
        text: 'Age of the oldest event that was received and is not booked. Normal: below 5 s.',
        queries: { lag: 'max(tollgate_metering_lag_seconds)' },
        unit: 's',
        isNumber: true,
        limits: [10, 60],
        alert: 'TollgateEventsWait',
      },
      {
        title: 'Behind the calls',
        text: 'Longest time for which a sidecar has allowed calls without a booked event.',
        queries: { behind: 'max(tollgate_escrow_stream_behind_seconds)' },
        unit: 's',
        isNumber: true,
        limits: [30, 60],
        alert: 'TollgateEventsMissing',
      },
      {
        title: 'In quarantine',
        text: 'Events that need an operator’s decision. Normal: 0.',
        queries: { events: 'sum(max by (reason) (tollgate_metering_quarantine_open))' },
        unit: 'short',
        isNumber: true,
        limits: [1, 100],
        alert: 'TollgateEventsQuarantined',
      },
      {
        title: 'Without a price',
        text: 'Tickets that wait for an ETH rate. Normal: 0.',
        queries: { tickets: 'max(tollgate_metering_unpriced_tickets)' },
        unit: 'short',
        isNumber: true,
        limits: [1, 1_000],
        alert: 'TollgateTicketsUnpriced',
      },
      {
        title: 'Age of the rate',
        text: 'Age of the newest usable ETH price.',
        queries: { age: 'max(tollgate_metering_rate_age_seconds)' },
        unit: 's',
        isNumber: true,
        limits: [180, 450],
        alert: 'TollgateRateOld',
      },
      {
        title: 'Lost tickets',
        text: 'Tickets of sessions of the last 7 days that never arrived. Normal: 0.',
        queries: { tickets: 'max(tollgate_metering_lost_tickets)' },
        unit: 'short',
        isNumber: true,
        limits: [1, 100],
        alert: 'TollgateTicketsLost',
      },
    ],
    [
      {
        title: 'Events by outcome',
        text: 'Events of the stream, and of direct mode.',
        queries: {
          ...perSecond('tollgate_metering_events_total', 'outcome'),
          'pushed to sidecars': 'sum(rate(tollgate_sidecar_events_total[$__rate_interval]))',
        },
        unit: 'short',
        alert: 'TollgateEventsWait',
      },
      {
        title: 'Lag',
        text: 'Age of the oldest event that is not booked, and how far events are behind the calls.',
        queries: {
          lag: 'max(tollgate_metering_lag_seconds)',
          'behind the calls': 'max(tollgate_escrow_stream_behind_seconds)',
        },
        unit: 's',
        limits: [30, 60],
        alert: 'TollgateEventsWait',
      },
      {
        title: 'Time to write a batch',
        text: 'Duration of the transactions that write events.',
        queries: quantiles('tollgate_metering_batch_duration_seconds'),
        unit: 's',
      },
      {
        title: 'Quarantine',
        text: 'Events put in quarantine by reason.',
        queries: perSecond('tollgate_metering_quarantined_total', 'reason'),
        unit: 'short',
        alert: 'TollgateEventsQuarantined',
      },
    ],
    [
      {
        title: 'Fees in quarantine',
        text: 'Wei of the events that need a decision, by reason.',
        queries: { '{{reason}}': 'max by (reason) (tollgate_metering_quarantine_open_wei)' },
        unit: 'short',
        alert: 'TollgateEventsQuarantined',
      },
      {
        title: 'Prices',
        text: 'Tickets priced late, and rates that were not recorded: unusable, or a jump.',
        queries: {
          'priced late': 'sum(rate(tollgate_metering_late_priced_total[$__rate_interval]))',
          ...perSecond('tollgate_metering_rates_rejected_total', 'why'),
        },
        unit: 'short',
        alert: 'TollgateRateOld',
      },
      {
        title: 'Anomalies',
        text: 'Tickets found lost, tickets that repeat a number of their session, and tickets that came 15 minutes late.',
        queries: {
          lost: 'sum(rate(tollgate_metering_lost_found_total[$__rate_interval]))',
          forked: 'sum(rate(tollgate_metering_forked_tickets_total[$__rate_interval]))',
          late: 'sum(rate(tollgate_metering_late_tickets_total[$__rate_interval]))',
        },
        unit: 'short',
        alert: 'TollgateTicketsLost',
      },
      {
        title: 'Spool: oldest event',
        text: 'Age of the oldest event in the spool of each sidecar.',
        queries: {
          '{{instance}}': 'max by (instance) (tollgate_sidecar_spool_oldest_event_age_seconds)',
        },
        unit: 's',
        limits: [60, 300],
        alert: 'TollgateSpoolWaits',
      },
    ],
    [
      {
        title: 'Spool: disk',
        text: 'Disk that each spool uses, of SPOOL_MAX_BYTES.',
        queries: {
          '{{instance}}': 'max by (instance) (tollgate_sidecar_spool_bytes)',
          '{{instance}} limit': 'max by (instance) (tollgate_sidecar_spool_max_bytes)',
        },
        unit: 'bytes',
        alert: 'TollgateSpoolFills',
      },
      {
        title: 'Spool: events and faults',
        text: 'Spooled events, 1 while the spool is full, damaged parts, and acknowledged events that were lost.',
        queries: {
          events: 'sum(tollgate_sidecar_spool_events)',
          full: 'max(tollgate_sidecar_spool_full)',
          damaged: 'sum(tollgate_sidecar_spool_damaged_total)',
          lost: 'sum(tollgate_sidecar_spool_lost_records_total)',
        },
        unit: 'short',
        alert: 'TollgateSpoolLost',
      },
      {
        title: 'Spool: time to write',
        text: 'Time to write a group of events and to force it to disk.',
        queries: quantiles('tollgate_sidecar_spool_write_duration_seconds'),
        unit: 's',
      },
      {
        title: 'Outbox',
        text: 'Rows that wait for another system such as OpenMeter, and rows that it refused for good.',
        queries: { '{{state}}': 'max by (state) (tollgate_outbox_rows)' },
        unit: 'short',
        alert: 'TollgateOutboxSetAside',
      },
    ],
    [
      {
        title: 'Outbox: deliveries',
        text: 'Delivered and failed rows by kind, and the age of the oldest row in seconds.',
        queries: {
          '{{kind}}': 'sum by (kind) (rate(tollgate_outbox_deliveries_total[$__rate_interval]))',
          '{{kind}} {{how}}':
            'sum by (kind, how) (rate(tollgate_outbox_failures_total[$__rate_interval]))',
          'oldest (s)': 'max(tollgate_outbox_age_seconds)',
        },
        unit: 'short',
        alert: 'TollgateOutboxStuck',
      },
      {
        title: 'OpenMeter',
        text: '1 while it answers, and the days of users whose sums differ. Empty without OpenMeter.',
        queries: {
          up: 'min(tollgate_metering_backend_up)',
          'days that differ': 'max(tollgate_metering_drift_user_days)',
        },
        unit: 'short',
        alert: 'TollgateBackendDown',
      },
      {
        title: 'Webhooks: attempts',
        text: 'Attempts to deliver events to endpoints of apps.',
        queries: {
          ...perSecond('tollgate_webhook_attempts_total', 'outcome'),
          '{{reason}} disabled':
            'sum by (reason) (rate(tollgate_webhook_endpoints_disabled_total[$__rate_interval]))',
        },
        unit: 'short',
      },
      {
        title: 'Webhooks: waiting',
        text: 'Deliveries that wait, seconds since the longest due endpoint waits for core, and endpoints by status.',
        queries: {
          deliveries: 'max(tollgate_webhook_deliveries_waiting)',
          'lag (s)': 'max(tollgate_webhook_lag_seconds)',
          '{{status}} endpoints': 'max by (status) (tollgate_webhook_endpoints)',
        },
        unit: 'short',
        alert: 'TollgateWebhooksLate',
      },
    ],
  ],
}
