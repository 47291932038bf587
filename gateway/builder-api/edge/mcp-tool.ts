import type { CallToolResult, Tool } from '@modelcontextprotocol/server'
import type { FastifyRequest } from 'fastify'
import { type DomainError, reasons } from '../../../proto/errors.ts'
import { renderError } from '../../http/errors.ts'
import type { ListenerDeps } from '../../http/listener.ts'
import { toRefusal } from '../../http/refusal.ts'
import { requireTexts } from '../../http/texts.ts'
import { AnyParameters, MeterParameters, MeterUsage, queryUsage } from '../usage.ts'

export type ToolDeps = Pick<ListenerDeps, 'httpMetrics' | 'publicUrl'>

const description = [
  'The metered usage of the user of the token only: the sum of one meter between two instants, with one row for each combination of the dimensions in groupBy.',
  'Meters in usd_micros are in millionths of a US dollar, fee_wei is in wei, billable_secs in seconds, signed_ticket_count a number of tickets.',
  'Read valueExact, the exact value. No rows mean no usage.',
].join(' ')

/** The tool's definition, as models read it. */
export const definition: Tool = JSON.parse(
  // Serialized and parsed because the schemas have their own types.
  JSON.stringify({
    name: 'query_usage',
    title: 'Metered usage',
    description,
    inputSchema: { ...MeterParameters, additionalProperties: false },
    outputSchema: MeterUsage,
    annotations: { readOnlyHint: true, openWorldHint: false },
  }),
)

export interface ToolCall {
  readonly clientId: string
  readonly parameters: unknown
  /** METERING_NOT_CONFIGURED if no metering backend is configured; null otherwise. */
  readonly unconfigured: DomainError | null
  readonly deps: ToolDeps
}

/**
 * Returns the answer of the usage route to these parameters. Returns a refusal as a tool error that
 * holds the problem document.
 */
export async function callTool(
  request: FastifyRequest,
  { clientId, parameters, unconfigured, deps: { httpMetrics, publicUrl } }: ToolCall,
): Promise<CallToolResult> {
  try {
    if (unconfigured) throw unconfigured
    const query = readParameters(request, parameters)
    const usage = await queryUsage(request.core, { clientId, query })
    return { content: [textOf(usage)], structuredContent: usage }
  } catch (thrown) {
    const { correlationId, routeOptions } = request
    const fault = thrown instanceof Error ? thrown : new Error(String(thrown))
    const error = toRefusal(fault, routeOptions.config.rules)
    if (reasons[error.reason].http >= 500) httpMetrics.failed(request, error)
    request.reason = error.reason
    const { body } = renderError({ error, wire: 'problem', correlationId, publicUrl })
    return { content: [textOf(body)], isError: true }
  }
}

const textOf = (value: object) => ({ type: 'text', text: JSON.stringify(value) }) as const

function readParameters(request: FastifyRequest, parameters: unknown): AnyParameters {
  requireTexts(Object(parameters))
  const validate = request.compileValidationSchema(AnyParameters)
  const isValid = (value: unknown): value is AnyParameters => validate(value) === true
  if (isValid(parameters)) return parameters
  throw Object.assign(new Error('wrong arguments'), {
    validation: validate.errors,
    validationContext: 'arguments',
  })
}
