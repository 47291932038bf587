import { type HrTime, ValueType } from '@opentelemetry/api'
import type { Resource } from '@opentelemetry/resources'
import {
  AggregationTemporality,
  DataPointType,
  type DataPoint,
  type Histogram,
  type MetricData,
  type MetricProducer,
} from '@opentelemetry/sdk-metrics'
import type { MetricObjectWithValues, MetricValue, MetricValueWithName } from 'prom-client'
import type { Metrics } from '../metrics.ts'

type PromMetric = MetricObjectWithValues<MetricValue<string> | MetricValueWithName<string>>
type PromValue = PromMetric['values'][number]

/** Reads the Prometheus registry as OpenTelemetry metrics, so that each has one instrument. */
export function createPrometheusProducer(metrics: Metrics, resource: Resource): MetricProducer {
  const startTime = toHrTime(Date.now())
  return {
    collect: async () => {
      const times = { startTime, endTime: toHrTime(Date.now()) }
      const all: readonly PromMetric[] = await metrics.getMetricsAsJSON()
      const data = all.flatMap((metric) => toMetricData(metric, times))
      const scopeMetrics = [{ scope: { name: 'tollgate' }, metrics: data }]
      return { resourceMetrics: { resource, scopeMetrics }, errors: [] }
    },
  }
}

interface Times {
  readonly startTime: HrTime
  readonly endTime: HrTime
}

const toHrTime = (ms: number): HrTime => [Math.floor(ms / 1000), (ms % 1000) * 1_000_000]

/** Summaries have no counterpart with the same meaning; we have none. */
function toMetricData(metric: PromMetric, times: Times): MetricData[] {
  const shared = {
    descriptor: {
      name: metric.name,
      description: metric.help,
      unit: unitOf(metric.name),
      valueType: ValueType.DOUBLE,
    },
    aggregationTemporality: AggregationTemporality.CUMULATIVE,
  }
  // JSON cannot hold NaN or Infinity, and a collector refuses an export that contains one.
  const dataPoints = metric.values
    .filter(({ value }) => Number.isFinite(value))
    .map(({ labels, value }) => toPoint(labels, value, times))
  const type = String(metric.type)
  if (type === 'counter')
    return [{ ...shared, dataPointType: DataPointType.SUM, isMonotonic: true, dataPoints }]
  if (type === 'gauge') return [{ ...shared, dataPointType: DataPointType.GAUGE, dataPoints }]
  if (type !== 'histogram') return []
  const histograms = toHistograms(metric, times)
  return [{ ...shared, dataPointType: DataPointType.HISTOGRAM, dataPoints: histograms }]
}

const toPoint = <T>(labels: PromValue['labels'], value: T, times: Times): DataPoint<T> => ({
  ...times,
  attributes: Object.fromEntries(
    Object.entries(labels).map(([name, label]) => [name, String(label)]),
  ),
  value,
})

/** Prometheus counts each bucket with all smaller ones; OpenTelemetry counts each alone. */
function toHistograms({ name, values }: PromMetric, times: Times): DataPoint<Histogram>[] {
  const series = Map.groupBy(values, ({ labels }) => {
    const { le: _le, ...others } = Object.fromEntries(Object.entries(labels))
    return JSON.stringify(Object.entries(others).toSorted())
  })
  return [...series.values()].map((all) => {
    const partOf = (part: string): readonly PromValue[] =>
      all.filter((each) => 'metricName' in each && each.metricName === `${name}_${part}`)
    const buckets = partOf('bucket')
    const [count] = partOf('count')
    const [sum] = partOf('sum')
    const boundaries = buckets
      .map((bucket) => Number('le' in bucket.labels ? bucket.labels['le'] : Number.NaN))
      .filter((boundary) => Number.isFinite(boundary))
    const totals = [
      ...buckets.slice(0, boundaries.length).map(({ value }) => value),
      count?.value ?? 0,
    ]
    const counts = totals.map((total, index) => total - (totals[index - 1] ?? 0))
    const value = {
      buckets: { boundaries, counts },
      sum: sum?.value ?? 0,
      count: count?.value ?? 0,
    }
    return toPoint(count?.labels ?? {}, value, times)
  })
}

/** The unit that the metric's name states, in UCUM. */
function unitOf(name: string): string {
  const base = name.replace(/_total$/, '')
  if (base.endsWith('_seconds')) return 's'
  return base.endsWith('_bytes') ? 'By' : ''
}
