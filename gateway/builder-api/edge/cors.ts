import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Cors } from '../../http/cors.ts'

const methods = 'GET, POST, PUT, DELETE, OPTIONS'
const requestHeaders = 'Authorization, Content-Type, Accept'
// Headers of all revisions of the Model Context Protocol.
const mcpHeaders = 'MCP-Protocol-Version, Mcp-Method, Mcp-Name'
const exposedHeaders = 'X-Correlation-Id, Retry-After, WWW-Authenticate'
const maxAgeSeconds = '86400'

/**
 * Lets only pages of `origins` read the edge's answers. Answers every OPTIONS with 204. Never
 * allows credentials.
 */
export function createEdgeCors(origins: readonly string[]): Cors {
  function answer(request: FastifyRequest, reply: FastifyReply): boolean {
    void reply.header('vary', 'Origin')
    const { origin } = request.headers
    const isOptions = request.method === 'OPTIONS'
    if (origin !== undefined && origins.includes(origin)) {
      void reply.headers({
        'access-control-allow-origin': origin,
        'access-control-expose-headers': exposedHeaders,
      })
      if (isOptions)
        void reply.headers({
          'access-control-allow-methods': methods,
          'access-control-allow-headers': isMcp(request)
            ? `${requestHeaders}, ${mcpHeaders}`
            : requestHeaders,
          'access-control-max-age': maxAgeSeconds,
        })
    }
    if (isOptions) void reply.code(204).send()
    return isOptions
  }

  return { answer }
}

const isMcp = ({ raw }: FastifyRequest): boolean => /\/mcp(?:\?|$)/.test(raw.url ?? '')
