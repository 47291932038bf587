import { type Dashboard, perSecond } from './dashboard.ts'

const http = 'tollgate_gateway_http_duration_seconds'
const byRoute = (share: string): string =>
  `topk(8, histogram_quantile(${share}, sum by (le, route) (rate(${http}_bucket[$__rate_interval]))))`

export const issuerDashboard: Dashboard = {
  uid: 'issuer',
  title: 'issuer',
  text: 'Do logins, tokens and the public routes work, and who attacks them?',
  rows: [
    [
      {
        title: 'Requests',
        text: 'Requests to all public routes.',
        queries: perSecond('tollgate_gateway_responses_total'),
        unit: 'reqps',
        isNumber: true,
      },
      {
        title: 'Failed requests',
        text: 'Responses with 500 in the last 15 minutes: faults of the service. Normal: 0.',
        queries: {
          failed: 'sum(increase(tollgate_gateway_responses_total{result="failed"}[15m]))',
        },
        unit: 'short',
        isNumber: true,
        limits: [1, 10],
        alert: 'TollgateGatewayFails',
      },
      {
        title: 'Age of the signing key',
        text: 'How long the active key has signed. The next key replaces it after SIGNING_KEY_ROTATION_DAYS.',
        queries: { age: 'max(tollgate_tokens_signing_key_age_seconds)' },
        unit: 's',
        isNumber: true,
        alert: 'TollgateSigningKeyOld',
      },
      {
        title: 'Key is replaced after',
        text: 'SIGNING_KEY_ROTATION_DAYS; 0 if keys rotate only by command.',
        queries: { age: 'max(tollgate_tokens_signing_key_max_age_seconds)' },
        unit: 's',
        isNumber: true,
        alert: 'TollgateSigningKeyOld',
      },
      {
        title: 'Live streams',
        text: 'Open streams of live spend.',
        queries: { streams: 'sum(tollgate_usage_streams)' },
        unit: 'short',
        isNumber: true,
      },
    ],
    [
      {
        title: 'Responses',
        text: '`refused` is 4xx, `unavailable` 502 to 504, `failed` every other 5xx.',
        queries: perSecond('tollgate_gateway_responses_total', 'result'),
        unit: 'reqps',
        alert: 'TollgateGatewayUnavailable',
      },
      {
        title: 'Requests by route',
        text: 'The eight routes with the most requests.',
        queries: {
          '{{method}} {{route}}': `topk(8, sum by (method, route) (rate(${http}_count[$__rate_interval])))`,
        },
        unit: 'reqps',
      },
      {
        title: 'Responses by status',
        text: 'Statuses of all routes.',
        queries: { '{{status}}': `sum by (status) (rate(${http}_count[$__rate_interval]))` },
        unit: 'reqps',
      },
    ],
    [
      {
        title: 'Slowest routes, p99',
        text: 'The slowest hundredth of the requests of the eight slowest routes.',
        queries: { '{{route}}': byRoute('0.99') },
        unit: 's',
        limits: [0.5, 2],
      },
      {
        title: 'Slowest routes, median',
        text: 'The median of the requests of the eight slowest routes.',
        queries: { '{{route}}': byRoute('0.5') },
        unit: 's',
      },
      {
        title: 'Token routes',
        text: 'Requests for tokens by status: 400 and 401 are refused grants and clients.',
        queries: {
          '{{route}} {{status}}': `sum by (route, status) (rate(${http}_count{route=~".*(token|device|authorize).*"}[$__rate_interval]))`,
        },
        unit: 'reqps',
      },
    ],
    [
      {
        title: 'Logins',
        text: 'Logins of people. Many `unknown` or `refused` ones are an attack; limits slow it down.',
        queries: {
          '{{method}} {{outcome}}':
            'sum by (method, outcome) (rate(tollgate_core_logins_total[$__rate_interval]))',
        },
        unit: 'short',
      },
      {
        title: 'Exchanges refused before authentication',
        text: 'Token exchanges without an accepted client, by reason. Only strangers and wrong settings cause them.',
        queries: perSecond('tollgate_tokens_anonymous_refusals_total', 'reason'),
        unit: 'short',
      },
      {
        title: 'Ignored X-Forwarded-For',
        text: 'Requests through a proxy that TRUSTED_PROXY_HOPS does not name: all callers share its limits. Normal: 0.',
        queries: perSecond('tollgate_gateway_forwarded_ignored_total'),
        unit: 'reqps',
        limits: [0.001, 1],
      },
    ],
  ],
}
