import { type IncomingMessage, type ServerResponse, createServer } from 'node:http'
import { listen } from '../../core/lib/http.ts'
import { answerQuestions, cpuMs } from './helper.ts'

/**
 * Does the minimum of any webhook on node:http: reads the body, parses it and answers with the
 * constant in the first argument. Its time-outs are the sidecar's, because they appear in the
 * headers.
 */
const constant = process.argv[2] ?? '{}'
const headers = {
  'content-type': 'application/json',
  'content-length': Buffer.byteLength(constant),
}

function answer(request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => void chunks.push(chunk))
  request.on('end', () => {
    const [first, ...others] = chunks
    JSON.parse((others.length === 0 && first ? first : Buffer.concat(chunks)).toString('utf8'))
    response.writeHead(200, headers)
    response.end(constant)
  })
}

const timeouts = { keepAliveTimeout: 120_000, headersTimeout: 125_000, requestTimeout: 130_000 }
const { port } = await listen(createServer(timeouts, answer), {
  host: '127.0.0.1',
  port: 0,
  setting: 'PORT',
})
answerQuestions({ port }, async () => ({ cpuMs: cpuMs() }))
