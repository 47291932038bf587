import type { CallToolResult, Tool } from '@modelcontextprotocol/server'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { resourcePath } from '../../../core/lib/names/resources.ts'
import { DomainError, reasons } from '../../../proto/errors.ts'
import type { App } from '../../http/app.ts'
import { parseJson } from '../../http/body.ts'
import { renderError } from '../../http/errors.ts'
import type { ListenerDeps } from '../../http/listener.ts'
import { toRefusal } from '../../http/refusal.ts'
import { type RouteRules, route } from '../../http/route.ts'
import { requireTexts } from '../../http/texts.ts'
import { AppParams } from '../../platform-api/schemas.ts'
import {
  AnyParameters,
  MeterParameters,
  MeterUsage,
  queryUsage,
  requireClientId,
} from '../usage.ts'

export interface McpDeps extends Pick<ListenerDeps, 'httpMetrics' | 'publicUrl'> {
  readonly corsOrigins: readonly string[]
}

const description = [
  'The metered usage of the user who is logged in, and of nobody else: the sum of one meter from one instant to another, in one row for each combination of the dimensions in groupBy.',
  'Meters in usd_micros are in millionths of a US dollar, fee_wei is in wei, billable_secs in seconds, signed_ticket_count a number of tickets.',
  'Read valueExact, the figure with all its digits. No rows mean no usage.',
].join(' ')

// Through JSON, because the schemas have types of their own.
const definition: Tool = JSON.parse(
  JSON.stringify({
    name: 'query_usage',
    title: 'Metered usage',
    description,
    inputSchema: { ...MeterParameters, additionalProperties: false },
    outputSchema: MeterUsage,
    annotations: { readOnlyHint: true, openWorldHint: false },
  }),
)

const rules: RouteRules = { guard: { kind: 'actor' }, limit: 'edge', refuses: ['ORIGIN_FORBIDDEN'] }

/**
 * Usage as the one tool of an MCP server (modelcontextprotocol.io, Streamable HTTP). What is refused before the message is
 * read is refused as everywhere at the edge. There are no streams and no sessions, so that GET and DELETE are 405.
 */
export function mcpRoutes(app: App, deps: McpDeps): void {
  const { config, schema } = route(rules, {
    operationId: 'sendMcpMessage',
    summary: 'Usage for MCP clients',
    description: 'Answers one message of the Model Context Protocol.',
    tags: ['usage'],
    params: AppParams,
    response: {},
  })
  app.post(
    resourcePath(':clientId', 'mcp'),
    {
      config,
      schema,
      onRequest: async ({ params, headers }) => {
        requireClientId(params)
        requireOrigin(headers.origin, deps.corsOrigins)
      },
    },
    async (request, reply) => {
      const { clientId } = request.params
      const unconfigured = await requireCaller(request, clientId)
      const message = readMessage(request)
      if (message instanceof DomainError) return refuseMessage(reply, message)
      const call = (parameters: unknown) =>
        callTool(request, { clientId, parameters, unconfigured, deps })
      // Its modules take a quarter of a second and 30 MiB, at the first message: most edges see none.
      const { answerMessage } = await import('./mcp-server.ts')
      const tool = { definition, call }
      return send(reply, await answerMessage(toWebRequest(request), { message, tool }))
    },
  )
}

/** A page that reached us under a name of its own (DNS rebinding) still tells its origin. */
function requireOrigin(origin: string | undefined, allowed: readonly string[]): void {
  if (origin !== undefined && !allowed.includes(origin))
    throw new DomainError('ORIGIN_FORBIDDEN', 'pages of this origin may not call the edge')
}

/** Refuses as usage does. That no backend is configured is for the tool to say: it is returned. */
async function requireCaller(
  { core }: FastifyRequest,
  clientId: string,
): Promise<DomainError | null> {
  try {
    await core.checkCaller({ kind: 'actor', clientId })
    return null
  } catch (error) {
    if (error instanceof DomainError && error.reason === 'METERING_NOT_CONFIGURED') return error
    throw error
  }
}

/** The message, or why the body holds none. */
function readMessage({ body, headers }: FastifyRequest): object | DomainError {
  try {
    return parseJson(Buffer.isBuffer(body) ? body : Buffer.alloc(0), headers['content-type'])
  } catch (error) {
    if (error instanceof DomainError && error.reason === 'REQUEST_INVALID') return error
    throw error
  }
}

/** In the codes of JSON-RPC 2.0: text that is no JSON, and JSON that is no single message. */
function refuseMessage(reply: FastifyReply, { message, cause }: DomainError): FastifyReply {
  const code = cause === undefined ? -32_600 : -32_700
  const body = { jsonrpc: '2.0', id: null, error: { code, message } }
  return reply.code(400).type('application/json').send(JSON.stringify(body))
}

/** The headers that the protocol knows; the credential is not among them. */
function toWebRequest({ url, headers: { accept, ...rest } }: FastifyRequest): Request {
  const headers = Object.entries(rest).filter(([name]) => /^(?:content-type$|mcp-)/.test(name))
  return new Request(new URL(url, 'http://edge'), {
    method: 'POST',
    headers: [...headers, ['accept', accept ?? '']].map(([name, value]) => [`${name}`, `${value}`]),
  })
}

async function send(reply: FastifyReply, response: Response): Promise<FastifyReply> {
  const type = response.headers.get('content-type')
  if (type !== null) void reply.type(type)
  return reply.code(response.status).send((await response.text()) || undefined)
}

interface ToolCall {
  readonly clientId: string
  readonly parameters: unknown
  readonly unconfigured: DomainError | null
  readonly deps: McpDeps
}

/** What usage answers to these parameters; its refusal, as it stands, is an error of the tool. */
async function callTool(
  request: FastifyRequest,
  { clientId, parameters, unconfigured, deps: { httpMetrics, publicUrl } }: ToolCall,
): Promise<CallToolResult> {
  try {
    if (unconfigured) throw unconfigured
    const query = readParameters(request, parameters)
    const usage = await queryUsage(request.core, { clientId, query })
    return { content: [textOf(usage)], structuredContent: usage }
  } catch (thrown) {
    const error = toRefusal(thrown instanceof Error ? thrown : new Error(String(thrown)), rules)
    if (reasons[error.reason].http >= 500) httpMetrics.failed(request, error)
    request.reason = error.reason
    const { correlationId } = request
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
