import type { FastifyReply, FastifyRequest } from 'fastify'
import { resourcePath } from '../../../core/lib/names/resources.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { App } from '../../http/app.ts'
import { parseJson } from '../../http/body.ts'
import { type RouteRules, route } from '../../http/route.ts'
import { AppParams } from '../../platform-api/schemas.ts'
import { requireClientId } from '../usage.ts'
import { type ToolDeps, callTool, definition } from './mcp-tool.ts'

export interface McpDeps extends ToolDeps {
  readonly corsOrigins: readonly string[]
}

const protocolHeader = /^(?:accept|content-type|mcp-.+)$/

const rules: RouteRules = { guard: { kind: 'actor' }, limit: 'edge', refuses: ['ORIGIN_FORBIDDEN'] }

/**
 * Adds an MCP server (modelcontextprotocol.io, Streamable HTTP) with usage as its one tool. Errors
 * before the message is parsed are answered as on all edge routes. There are no streams and no
 * sessions, so GET and DELETE return 405.
 */
export function mcpRoutes(app: App, deps: McpDeps): void {
  const { config, schema } = route({
    ...rules,
    operationId: 'sendMcpMessage',
    summary: 'Usage for MCP clients',
    description: 'Handles one message of the Model Context Protocol.',
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
      // Loaded with the first message, because its modules take 250 ms and 30 MiB and most edges
      // never use them.
      const { answerMessage } = await import('./mcp-server.ts')
      const tool = { definition, call }
      return send(reply, await answerMessage(toWebRequest(request), { message, tool }))
    },
  )
}

/**
 * Prevents DNS rebinding: a page that reaches us under its own host name still sends its origin.
 */
function requireOrigin(origin: string | undefined, allowed: readonly string[]): void {
  if (origin !== undefined && !allowed.includes(origin))
    throw new DomainError('ORIGIN_FORBIDDEN', 'pages of this origin may not call the edge')
}

/**
 * Refuses like the usage route, but returns METERING_NOT_CONFIGURED so that the tool can report it.
 */
async function requireCaller(
  { core }: FastifyRequest,
  clientId: string,
): Promise<DomainError | null> {
  try {
    await core.callers.checkCaller({ kind: 'actor', clientId })
    return null
  } catch (error) {
    if (error instanceof DomainError && error.reason === 'METERING_NOT_CONFIGURED') return error
    throw error
  }
}

/** Returns the message, or the error if the body is not a message. */
function readMessage({ body, headers }: FastifyRequest): object | DomainError {
  try {
    return parseJson(Buffer.isBuffer(body) ? body : Buffer.alloc(0), headers['content-type'])
  } catch (error) {
    if (error instanceof DomainError && error.reason === 'REQUEST_INVALID') return error
    throw error
  }
}

/**
 * Uses the codes of JSON-RPC 2.0: -32700 for invalid JSON, -32600 for JSON that is not one message.
 */
function refuseMessage(reply: FastifyReply, { message, cause }: DomainError): FastifyReply {
  const code = cause === undefined ? -32_600 : -32_700
  const body = { jsonrpc: '2.0', id: null, error: { code, message } }
  return reply.code(400).type('application/json').send(JSON.stringify(body))
}

/** Forwards only headers of the protocol, never the credential. */
function toWebRequest({ headers }: FastifyRequest): Request {
  const known = Object.entries(headers).filter(([name]) => protocolHeader.test(name))
  return new Request('http://edge', {
    method: 'POST',
    headers: known.map(([name, value]) => [name, String(value)]),
  })
}

async function send(reply: FastifyReply, response: Response): Promise<FastifyReply> {
  const type = response.headers.get('content-type')
  if (type !== null) void reply.type(type)
  return reply.code(response.status).send((await response.text()) || undefined)
}
