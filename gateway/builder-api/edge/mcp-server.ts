import {
  type CallToolResult,
  ProtocolError,
  ProtocolErrorCode,
  Server,
  type Tool,
  createMcpHandler,
} from '@modelcontextprotocol/server'

export interface CallableTool {
  readonly definition: Tool
  /** Never throws; returns refusals as results. */
  call(parameters: unknown): Promise<CallToolResult>
}

/**
 * The revisions with structured answers. Older ones allow batches, each of which the rate limits
 * would count as one request.
 */
const revisions = ['2026-07-28', '2025-11-25', '2025-06-18']

/**
 * Answers one message of the Model Context Protocol, in the message's revision. Stateless: no
 * sessions, no streams. Throws only internal errors.
 */
export async function answerMessage(
  request: Request,
  { message, tool }: { readonly message: object; readonly tool: CallableTool },
): Promise<Response> {
  let failure: Error | undefined
  const handler = createMcpHandler(() => createServer(tool), {
    onerror: (error) => (failure = error),
    keepAliveMs: 0,
  })
  const response = await handler.fetch(request, { parsedBody: message })
  if (response.status >= 500) throw failure ?? new Error('the MCP server failed')
  return response
}

function createServer(tool: CallableTool): Server {
  const server = new Server(
    { name: 'tollgate', title: 'tollgate', version: '1.0.0' },
    { capabilities: { tools: {} }, supportedProtocolVersions: revisions },
  )
  server.setRequestHandler('tools/list', () => ({ tools: [tool.definition] }))
  server.setRequestHandler('tools/call', ({ params }) => {
    if (params.name === tool.definition.name) return tool.call(params.arguments ?? {})
    throw new ProtocolError(
      ProtocolErrorCode.InvalidParams,
      `unknown tool; the only tool is ${tool.definition.name}`,
    )
  })
  return server
}
