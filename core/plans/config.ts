import type { EnvReader } from '../lib/env.ts'

export interface PlansConfig {
  /**
   * Features that credit can be bound to: a pipeline with all its models, or one model of a
   * pipeline.
   */
  readonly pipelines: readonly string[]
  /** Address of the catalogue; null when not configured. */
  readonly catalogUrl: string | null
}

const pipelinesMax = 200
const entrySyntax = /^[A-Za-z0-9][A-Za-z0-9._/-]*(:[A-Za-z0-9][A-Za-z0-9._:/-]*)?$/

// Session types of the remote signer, as its tickets name them, and pipelines of the network's AI
// jobs.
const known =
  'live-video-to-video,live,fixed,text-to-image,image-to-image,image-to-video,image-to-text,upscale,' +
  'audio-to-text,text-to-speech,segment-anything-2,llm'

/** Declares and reads the settings of plans. */
export function readPlansConfig(env: EnvReader): PlansConfig {
  const catalogUrl = env.url('CATALOG_URL', {
    schemes: ['https', 'http'],
    meaning:
      'Address of the catalogue of pipelines and models, read every five minutes. If a read fails, the last catalogue stays in use.',
  })
  // No default when an address is set: the default allows every model, whatever the address
  // returns.
  const pipelines = env.list('PIPELINES', {
    ...(catalogUrl === undefined ? { fallback: known } : {}),
    meaning:
      'Pipelines, or pipeline:modelId for single models, that plans may name and credit may be bound to (comma list). Empty by default if CATALOG_URL is set.',
  })
  const wrong = pipelines.find((entry) => entry.length > 128 || !entrySyntax.test(entry))
  if (wrong !== undefined)
    env.problem(
      `PIPELINES must be a comma list of pipelines or pipeline:modelId; ${wrong} is neither`,
    )
  if (pipelines.length > pipelinesMax)
    env.problem(`PIPELINES may have at most ${pipelinesMax} entries`)
  return { pipelines, catalogUrl: catalogUrl ?? null }
}
