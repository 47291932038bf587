import { type Dashboard, perSecond, quantiles } from './dashboard.ts'

const decisions = 'tollgate_sidecar_decisions_total'
const unavailable = `${decisions}{decision=~"rate_unavailable|billing_unavailable|authorization_unavailable"}`

export const decisionsDashboard: Dashboard = {
  uid: 'decisions',
  title: 'decisions',
  text: 'Is a user refused who should not be, and are decisions fast?',
  rows: [
    [
      {
        title: 'Decisions',
        text: 'Answers of all sidecars to signers.',
        queries: perSecond(decisions),
        unit: 'reqps',
        isNumber: true,
      },
      {
        title: 'Allowed',
        text: 'Share of decisions that allow the call.',
        queries: {
          share: `sum(rate(${decisions}{decision="ok"}[5m])) / (sum(rate(${decisions}[5m])) > 0) or vector(1)`,
        },
        unit: 'percentunit',
        isNumber: true,
      },
      {
        title: 'Refused by faults',
        text: '503 because a part of the service does not answer. Normal: 0.',
        queries: { 'per second': `sum(rate(${unavailable}[5m]))` },
        unit: 'reqps',
        isNumber: true,
        limits: [0.001, 1],
        alert: 'TollgateDecisionsUnavailable',
      },
      {
        title: 'Sidecars without core',
        text: 'Sidecars that core does not answer. They work until their leases end. Normal: 0.',
        queries: { sidecars: 'sum(tollgate_sidecar_core_away)' },
        unit: 'short',
        isNumber: true,
        limits: [1, 1],
        alert: 'TollgateSidecarAlone',
      },
      {
        title: 'Unreported calls',
        text: 'Calls that core does not know yet. At 100,000 a sidecar refuses every call.',
        queries: { calls: 'max(tollgate_sidecar_unreported_calls)' },
        unit: 'short',
        isNumber: true,
        limits: [5_000, 20_000],
        alert: 'TollgateCallsUnreported',
      },
    ],
    [
      {
        title: 'Decisions by code',
        text: 'Codes of 401 and 403 are wrong credentials, of 483 a lack of money, of 429 limits of owners, of 503 faults of the service.',
        queries: perSecond(decisions, 'decision'),
        unit: 'reqps',
        alert: 'TollgateDecisionsUnavailable',
      },
      {
        title: 'Duration',
        text: 'From the complete request to its response. A warm decision takes less than a millisecond.',
        queries: quantiles('tollgate_sidecar_decision_duration_seconds'),
        unit: 's',
        limits: [0.1, 0.5],
        alert: 'TollgateDecisionsSlow',
      },
      {
        title: 'Reservations refused by core',
        text: 'Reasons why core refused to reserve money for single calls.',
        queries: perSecond('tollgate_escrow_refused_total', 'reason'),
        unit: 'reqps',
      },
    ],
    [
      {
        title: 'Source of identity',
        text: 'Where the sidecar found the user. Mostly memory in a healthy service.',
        queries: perSecond(decisions, 'identity'),
        unit: 'reqps',
      },
      {
        title: 'Source of money',
        text: 'What paid for the call. Mostly leases; offline means that core does not answer.',
        queries: perSecond(decisions, 'money'),
        unit: 'reqps',
        alert: 'TollgateSidecarAlone',
      },
      {
        title: 'Failed calls to core and Redis',
        text: 'Calls of sidecars that failed. Normal: 0.',
        queries: perSecond('tollgate_sidecar_dependency_failures_total', 'dependency'),
        unit: 'reqps',
        alert: 'TollgateSidecarAlone',
      },
    ],
    [
      {
        title: 'Money of sidecars',
        text: 'USD per second that core lent, that calls spent, that leases returned, that calls spent without core, and that was refused.',
        queries: {
          lent: 'sum(rate(tollgate_sidecar_lent_usd_total[$__rate_interval]))',
          spent: 'sum(rate(tollgate_sidecar_spent_usd_total[$__rate_interval]))',
          returned: 'sum(rate(tollgate_sidecar_returned_usd_total[$__rate_interval]))',
          offline: 'sum(rate(tollgate_sidecar_offline_usd_total[$__rate_interval]))',
          refused: 'sum(rate(tollgate_sidecar_refused_usd_total[$__rate_interval]))',
        },
        unit: 'currencyUSD',
      },
      {
        title: 'Time without core',
        text: 'How long each sidecar can allow calls if core stops now: the rest of its longest lease.',
        queries: { '{{instance}}': 'max by (instance) (tollgate_sidecar_lease_seconds)' },
        unit: 's',
        alert: 'TollgateSidecarAlone',
      },
      {
        title: 'Unreported calls',
        text: 'Calls that wait for a report to core, by sidecar.',
        queries: { '{{instance}}': 'max by (instance) (tollgate_sidecar_unreported_calls)' },
        unit: 'short',
        limits: [5_000, 20_000],
        alert: 'TollgateCallsUnreported',
      },
    ],
    [
      {
        title: 'Callers without a valid secret',
        text: 'Requests with a wrong webhook secret, and forged entries of the shared cache. Normal: 0.',
        queries: {
          ...perSecond('tollgate_sidecar_callers_refused_total', 'reason'),
          'forged cache entries':
            'sum(rate(tollgate_sidecar_cache_forgeries_total[$__rate_interval]))',
        },
        unit: 'reqps',
      },
      {
        title: 'Cache entries',
        text: 'Entries in the memory of sidecars, at most SIDECAR_CACHE_ENTRIES each.',
        queries: { '{{cache}}': 'sum by (cache) (tollgate_sidecar_cache_entries)' },
        unit: 'short',
      },
      {
        title: 'Records of decisions',
        text: 'Records that explain decisions later. Omitted ones were above DECISION_RECORDS_PER_SECOND.',
        queries: perSecond('tollgate_sidecar_decision_records_total', 'outcome'),
        unit: 'reqps',
      },
    ],
  ],
}
