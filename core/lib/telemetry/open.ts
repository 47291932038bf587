import { setTimeout as sleep } from 'node:timers/promises'
import type { TelemetryConfig } from './config.ts'
import type { TelemetryDeps } from './opentelemetry.ts'
import { setTracing } from './tracing.ts'

/** Time to send what is waiting when the process ends. */
const flushMs = 1_000

/**
 * Starts traces and metrics if a collector is configured; only then are their modules loaded. Call
 * it before the parts of the process start. Returns how to stop it.
 */
export async function openTelemetry(
  config: TelemetryConfig | undefined,
  deps: TelemetryDeps,
): Promise<() => Promise<void>> {
  if (config === undefined) return async () => {}
  const { startTelemetry } = await import('./opentelemetry.ts')
  const { tracing, stop } = startTelemetry(config, deps)
  setTracing(tracing)
  return () => Promise.race([stop(), sleep(flushMs, undefined, { ref: false })])
}
