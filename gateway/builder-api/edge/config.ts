import type { EnvReader } from '../../../core/lib/env.ts'
import type { Reloadable } from '../../../core/lib/settings/reloadable.ts'
import { readEdgeUrl } from '../../../core/lib/settings/shared.ts'

/** Settings of the edge, which exposes the builder API's usage to the internet (docs/edge.md). */
export interface BuilderEdgeConfig {
  readonly port: number
  /** The edge's public origin; no trailing slash. */
  readonly url: string
  readonly corsOrigins: readonly string[]
  /** Requests per minute from one address. */
  readonly perAddress: Reloadable<number>
}

/** Returns undefined if no edge is configured. */
export function readBuilderEdge(env: EnvReader): BuilderEdgeConfig | undefined {
  const url = readEdgeUrl(env)
  const text = env.optional('EDGE_PORT', {
    meaning:
      "Port of the builder API's edge: usage, health and client registration for the internet.",
  })
  const corsOrigins = env.list('EDGE_CORS_ORIGINS', {
    meaning: 'Origins of browser pages that may call the edge.',
  })
  const perAddress = env.live(() =>
    env.integer('EDGE_RATE_LIMIT_ADDRESS', {
      meaning: 'Requests a minute from one address to the edge.',
      fallback: '600',
      min: 1,
      max: 1_000_000,
    }),
  )
  const wrong = corsOrigins.find((origin) => !isOrigin(origin))
  if (wrong !== undefined)
    env.problem(
      `EDGE_CORS_ORIGINS must be origins like https://app.example, not ${wrong.slice(0, 100)}`,
    )
  if (text === undefined) return undefined
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN
  if (!(port <= 65_535)) env.problem('EDGE_PORT must be a port, from 0 to 65535')
  return { port, url: url ?? `http://localhost:${port}`, corsOrigins, perAddress }
}

const isOrigin = (text: string): boolean => URL.canParse(text) && new URL(text).origin === text
