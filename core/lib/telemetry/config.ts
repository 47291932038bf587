import type { EnvReader } from '../env.ts'

const samplers = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const

export interface TelemetryConfig {
  /** Address of the collector; signals are sent below it. */
  readonly endpoint: string
  readonly headers: Readonly<Record<string, string>>
  readonly serviceName: string
  readonly resource: Readonly<Record<string, string>>
  readonly sampler: (typeof samplers)[number]
  /** Share of traces that a ratio sampler keeps. */
  readonly ratio: number
  readonly metricsIntervalMs: number
}

const pairsMax = 64

/** Reads the settings of OpenTelemetry; undefined without a collector. */
export function readTelemetry(env: EnvReader, process: string): TelemetryConfig | undefined {
  const endpoint = env.url('OTEL_EXPORTER_OTLP_ENDPOINT', {
    schemes: ['http', 'https'],
    meaning:
      'Address of an OpenTelemetry collector (OTLP over HTTP with JSON, usually port 4318). When set, traces and metrics are sent there (docs/metrics.md#opentelemetry).',
  })
  const config = {
    headers: readPairs(env, 'OTEL_EXPORTER_OTLP_HEADERS', {
      secret: true,
      meaning: 'Headers of requests to the collector, as name=value pairs, such as its API key.',
    }),
    serviceName:
      env.optional('OTEL_SERVICE_NAME', {
        meaning:
          'Name of this process in traces and metrics; when not set, tollgate- and the process.',
      }) ?? `tollgate-${process}`,
    resource: readPairs(env, 'OTEL_RESOURCE_ATTRIBUTES', {
      meaning: 'More attributes of this process in traces and metrics, as name=value pairs.',
    }),
    sampler: env.choice('OTEL_TRACES_SAMPLER', {
      choices: samplers,
      fallback: 'parentbased_always_on',
      meaning:
        'Which traces are kept. The parentbased ones follow the decision of a caller that sends traceparent, except in gateways.',
    }),
    ratio: readRatio(env),
    metricsIntervalMs: env.integer('OTEL_METRIC_EXPORT_INTERVAL', {
      fallback: '60000',
      min: 1_000,
      max: 3_600_000,
      meaning: 'Milliseconds between two exports of the metrics to the collector.',
    }),
  }
  return endpoint === undefined ? undefined : { endpoint, ...config }
}

function readRatio(env: EnvReader): number {
  const text = env.text('OTEL_TRACES_SAMPLER_ARG', {
    fallback: '1',
    meaning: 'Share of traces that a traceidratio sampler keeps, from 0 to 1.',
  })
  const ratio = /^\d*\.?\d+$/.test(text) ? Number(text) : Number.NaN
  if (ratio >= 0 && ratio <= 1) return ratio
  env.problem('OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1')
  return 1
}

interface PairsSpec {
  readonly secret?: boolean
  readonly meaning: string
}

/** Reads name=value pairs, with values percent-encoded as W3C Baggage has them. */
function readPairs(env: EnvReader, name: string, spec: PairsSpec): Record<string, string> {
  const pairs = env.list(name, spec).map((pair) => pair.split('='))
  const isPair = ([key, ...value]: readonly string[]): boolean =>
    /^[\w.*/-]{1,255}$/.test(key?.trim() ?? '') && isDecodable(value.join('='))
  if (pairs.length <= pairsMax && pairs.every(isPair) && pairs.every(({ length }) => length > 1))
    return Object.fromEntries(
      pairs.map(([key = '', ...value]) => [key.trim(), decodeURIComponent(value.join('=').trim())]),
    )
  env.problem(`${name} must hold at most ${pairsMax} name=value pairs, separated by commas`)
  return {}
}

function isDecodable(text: string): boolean {
  try {
    return !/[\r\n]/.test(decodeURIComponent(text))
  } catch {
    return false
  }
}
