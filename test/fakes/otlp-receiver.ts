import { once } from 'node:events'
import { createServer } from 'node:http'
import { json } from 'node:stream/consumers'

interface Attribute {
  readonly key: string
  readonly value: { readonly stringValue?: string; readonly intValue?: number | string }
}

export interface ReceivedSpan {
  readonly service: string
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly kind: number
  readonly links?: readonly { readonly traceId: string; readonly spanId: string }[]
  readonly status?: { readonly code?: number; readonly message?: string }
  readonly attributes: Readonly<Record<string, string>>
}

interface RawSpan extends Omit<ReceivedSpan, 'service' | 'attributes'> {
  readonly attributes?: readonly Attribute[]
}

export interface ReceivedMetric {
  readonly name: string
  readonly unit?: string
  readonly sum?: { readonly dataPoints: readonly Point[]; readonly isMonotonic?: boolean }
  readonly gauge?: { readonly dataPoints: readonly Point[] }
  readonly histogram?: { readonly dataPoints: readonly HistogramPoint[] }
}

interface Point {
  readonly asDouble?: number
  readonly attributes?: readonly Attribute[]
}

interface HistogramPoint extends Point {
  readonly count: number | string
  readonly sum: number
  readonly bucketCounts: readonly (number | string)[]
  readonly explicitBounds: readonly number[]
}

interface Resource {
  readonly resource: { readonly attributes: readonly Attribute[] }
}

interface Body {
  readonly resourceSpans?: readonly (Resource & {
    readonly scopeSpans: readonly { readonly spans: readonly RawSpan[] }[]
  })[]
  readonly resourceMetrics?: readonly (Resource & {
    readonly scopeMetrics: readonly { readonly metrics: readonly ReceivedMetric[] }[]
  })[]
}

/** An OpenTelemetry collector that accepts OTLP over HTTP with JSON, and keeps what it received. */
export async function startOtlpReceiver() {
  const texts: string[] = []
  const spans: ReceivedSpan[] = []
  const metrics: ReceivedMetric[] = []
  const headers: Readonly<Record<string, unknown>>[] = []

  const server = createServer((request, response) => {
    void json(request).then((body) => {
      headers.push(request.headers)
      texts.push(JSON.stringify(body))
      accept(body as Body)
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
    })
  })

  function accept({ resourceSpans = [], resourceMetrics = [] }: Body): void {
    for (const { resource, scopeSpans } of resourceSpans) {
      const service = toRecord(resource.attributes)['service.name'] ?? ''
      for (const { spans: received } of scopeSpans)
        for (const { attributes = [], ...span } of received)
          spans.push({ ...span, service, attributes: toRecord(attributes) })
    }
    for (const { scopeMetrics } of resourceMetrics)
      for (const scope of scopeMetrics) metrics.push(...scope.metrics)
  }

  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const port = typeof address === 'object' ? (address?.port ?? 0) : 0
  return {
    url: `http://127.0.0.1:${port}`,
    spans,
    metrics,
    headers,
    /** Everything received, as text. */
    texts,
    async stop(): Promise<void> {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

export type OtlpReceiver = Awaited<ReturnType<typeof startOtlpReceiver>>

export const toRecord = (attributes: readonly Attribute[]): Record<string, string> =>
  Object.fromEntries(
    attributes.map(({ key, value }) => [key, String(value.stringValue ?? value.intValue ?? '')]),
  )
