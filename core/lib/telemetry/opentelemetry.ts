import { AsyncLocalStorage } from 'node:async_hooks'
import { randomUUID } from 'node:crypto'
import {
  type Context,
  DiagLogLevel,
  type Link,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  defaultTextMapGetter,
  defaultTextMapSetter,
  diag,
  trace,
} from '@opentelemetry/api'
import { W3CTraceContextPropagator } from '@opentelemetry/core'
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-http'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { type Resource, resourceFromAttributes } from '@opentelemetry/resources'
import { MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics'
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace'
import { type Log, createThrottle } from '../log.ts'
import type { Metrics } from '../metrics.ts'
import { systemNow } from '../time.ts'
import type { TelemetryConfig } from './config.ts'
import { createPrometheusProducer } from './prometheus-producer.ts'
import type { OpenSpan, SpanStart, Tracing } from './tracing.ts'

const queueMax = 2_048
const batchMax = 512
const pauseMs = 1_000
const exportMs = 5_000
const warnEveryMs = 60_000

export interface TelemetryDeps {
  readonly metrics: Metrics
  readonly log: Log
}

export interface Telemetry {
  readonly tracing: Tracing
  /** Sends what is waiting. */
  stop(): Promise<void>
}

/**
 * Sends traces and the metrics of the registry by OTLP. Spans wait in a bounded queue: without a
 * collector the oldest ones are sent or dropped, requests never wait, and a warning is logged once
 * a minute.
 */
export function startTelemetry(
  config: TelemetryConfig,
  { metrics, log }: TelemetryDeps,
): Telemetry {
  reportFailures(log)
  const { endpoint, headers: sent, metricsIntervalMs } = config
  const target = (signal: string) => ({
    url: `${endpoint}/v1/${signal}`,
    headers: { ...sent },
    timeoutMillis: exportMs,
  })
  const resource = describeProcess(config)
  const spans = new BatchSpanProcessor({
    exporter: new OTLPTraceExporter(target('traces')),
    maxQueueSize: queueMax,
    maxExportBatchSize: batchMax,
    scheduledDelayMillis: pauseMs,
    exportTimeoutMillis: exportMs,
  })
  const tracers = new TracerProvider({
    resource,
    sampler: samplerOf(config),
    spanLimits: { attributeValueLengthLimit: 256, attributeCountLimit: 32 },
    spanProcessors: [spans],
  })
  const meters = new MeterProvider({
    resource,
    readers: [
      new PeriodicExportingMetricReader({
        exporter: new OTLPMetricExporter(target('metrics')),
        exportIntervalMillis: metricsIntervalMs,
        exportTimeoutMillis: Math.min(exportMs, metricsIntervalMs),
        metricProducers: [createPrometheusProducer(metrics, resource)],
      }),
    ],
  })
  return {
    tracing: createTracing(tracers.getTracer('tollgate')),
    stop: async () => void (await Promise.allSettled([tracers.shutdown(), meters.shutdown()])),
  }
}

/** Logs the SDK's failures; a collector that is down would otherwise log each batch. */
function reportFailures(log: Log): void {
  const isDue = createThrottle(systemNow, warnEveryMs)
  const warn = (message: string): void => {
    if (!isDue('telemetry')) return
    const why = /E[A-Z]{4,}|timed? ?out|status(?: code)?:? \d{3}/i.exec(message)?.[0]
    log.warn({ why }, 'traces or metrics cannot be sent to OTEL_EXPORTER_OTLP_ENDPOINT')
  }
  const ignore = (): void => {}
  const logger = { error: warn, warn, info: ignore, debug: ignore, verbose: ignore }
  diag.setLogger(logger, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true })
}

const describeProcess = ({ serviceName, resource }: TelemetryConfig): Resource =>
  resourceFromAttributes({
    'service.instance.id': randomUUID(),
    ...resource,
    'service.name': serviceName,
  })

function samplerOf({ sampler, ratio }: TelemetryConfig): Sampler {
  const isParentBased = sampler.startsWith('parentbased_')
  const root = rootSampler(sampler.replace('parentbased_', ''), ratio)
  return isParentBased ? new ParentBasedSampler({ root }) : root
}

function rootSampler(name: string, ratio: number): Sampler {
  if (name === 'always_on') return new AlwaysOnSampler()
  return name === 'always_off' ? new AlwaysOffSampler() : new TraceIdRatioBasedSampler(ratio)
}

const kinds = { server: SpanKind.SERVER, client: SpanKind.CLIENT } as const

/** Traces by the tracer. The current span is in an AsyncLocalStorage. */
export function createTracing(tracer: Tracer): Tracing {
  const storage = new AsyncLocalStorage<Context>()
  const propagator = new W3CTraceContextPropagator()
  const currentSpan = (): Span | undefined => {
    const context = storage.getStore()
    return context && trace.getSpan(context)
  }

  function open(
    { name, kind, attributes }: SpanStart,
    parent: Context,
    links: readonly Link[] = [],
  ): OpenSpan {
    const options = { kind: kinds[kind], attributes: { ...attributes }, links: [...links] }
    const span = tracer.startSpan(name, options, parent)
    const context = trace.setSpan(parent, span)
    return {
      run: (work) => storage.run(context, work),
      annotate: (more) => void span.setAttributes({ ...more }),
      headers: () => {
        const carrier: Record<string, string> = {}
        propagator.inject(context, carrier, defaultTextMapSetter)
        return carrier
      },
      end: (failure) => {
        if (failure !== undefined && span.isRecording())
          span.setStatus({ code: SpanStatusCode.ERROR, message: failure })
        if (span.isRecording()) span.end()
      },
    }
  }

  return {
    serve: (start) => {
      const caller = propagator.extract(ROOT_CONTEXT, start.headers ?? {}, defaultTextMapGetter)
      if (start.isPublic !== true) return open(start, caller)
      const context = trace.getSpanContext(caller)
      return open(start, ROOT_CONTEXT, context ? [{ context }] : [])
    },
    startCall: (start) => open(start, storage.getStore() ?? ROOT_CONTEXT),
    startChild: (start) => {
      const parent = storage.getStore()
      return parent === undefined ? null : open(start, parent)
    },
    annotate: (attributes) => void currentSpan()?.setAttributes({ ...attributes }),
    logFields: () => {
      const ids = currentSpan()?.spanContext()
      return ids ? { trace_id: ids.traceId, span_id: ids.spanId } : {}
    },
  }
}
