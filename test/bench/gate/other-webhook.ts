import { type IncomingMessage, type ServerResponse, createServer } from 'node:http'
import { routeWebhookRequest } from '@pymthouse/clearinghouse-identity-webhook/protocol'
import {
  createApiKeyVerifier,
  createOidcVerifier,
} from '@pymthouse/clearinghouse-identity-webhook/verifiers'
import { listen } from '../../../core/lib/http.ts'
import { answerQuestions, cpuMs } from '../helper.ts'

/**
 * Runs the other identity webhook for this protocol in a separate process: the package's own routes
 * behind node:http, with minimal glue and without a balance. The argument is JSON: the signer's
 * secret, the issuer, and either the keys with their users or the issuer's public keys.
 */
interface Settings {
  readonly secret: string
  readonly issuer: string
  readonly keys?: Readonly<Record<string, string>>
  readonly clientId: string
  readonly jwks?: object
}

const { secret, issuer, keys, clientId, jwks }: Settings = JSON.parse(process.argv[2] ?? '{}')
const users = new Map(Object.entries(keys ?? {}))

const byKey = () =>
  createApiKeyVerifier({
    issuer,
    apiKeyPrefix: 'svc_ak_',
    resolveApiKey: (key) => {
      const userId = users.get(key)
      return userId === undefined ? null : { userId, clientId }
    },
  })

const byToken = () =>
  createOidcVerifier({
    jwtIssuer: issuer,
    jwtAudience: issuer,
    jwksUri: `${issuer}/jwks`,
    fetchImpl: async () => Response.json(jwks),
    subjectClaim: 'external_user_id',
    requiredScopes: ['sign:job'],
  })

const config = { webhookSecret: secret, endUserAuth: jwks ? byToken() : byKey() }

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  const reply = await routeWebhookRequest(toWeb(request, Buffer.concat(chunks)), config)
  if (!reply) return void response.writeHead(404).end()
  const body = await reply.text()
  response.writeHead(reply.status, {
    ...Object.fromEntries(reply.headers),
    'content-length': Buffer.byteLength(body),
  })
  response.end(body)
}

function toWeb({ url, method = '', headers }: IncomingMessage, body: Buffer): Request {
  const texts = new Headers()
  for (const [name, value] of Object.entries(headers)) texts.set(name, String(value))
  return new Request(`http://127.0.0.1${url}`, { method, headers: texts, body: body.toString() })
}

const server = createServer((request, response) => void answer(request, response))
const { port } = await listen(server, { host: '127.0.0.1', port: 0, setting: 'PORT' })
answerQuestions({ port }, async () => ({ cpuMs: cpuMs() }))
