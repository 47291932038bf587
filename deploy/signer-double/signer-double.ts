import { callSigner, payBody } from './client.ts'
import type { PayRequest, PayResult } from './client.ts'
import { DEFAULT_ORCHESTRATOR } from './options.ts'
import type { SignerDoubleOptions } from './options.ts'
import { openState } from './payment/payment.ts'
import { close, createSignerServer, listen } from './server.ts'
import { createSigner } from './signer.ts'
import type { SessionState, SignedState } from './payment/state.ts'
import { createRecorder } from './stats.ts'
import type { Stats } from './stats.ts'
import { createClock, systemClock } from './wire/time.ts'

export type SignerDouble = Readonly<{
  /** Starts listening. Rejects when the port is in use. */
  start: () => Promise<{ url: string }>
  /** Sends the queued events, within the limits of the sinks, and closes every socket. */
  stop: () => Promise<void>
  /** Makes one call of a gateway, through real HTTP on the double's own port. */
  pay: (request?: PayRequest) => Promise<PayResult>
  /** Moves the double's clock forward, without sleeping. */
  advance: (seconds: number) => void
  /** Answers 480 to this many of the next calls. */
  demandRefresh: (calls?: number) => void
  /** Signs a state of the test; missing members are those of a new session. */
  seal: (state: Partial<SessionState>) => SignedState
  stats: () => Stats
  /** Sends the queued events without their remaining delay. */
  flush: () => Promise<void>
}>

/**
 * A faithful imitation of go-livepeer's remote signer: the same bytes to the webhook, the same
 * decoding of its answers and the same events, without chain and money. For tests and the demo
 * only.
 */
export function createSignerDouble(options: SignerDoubleOptions): SignerDouble {
  const orchestrator = { ...DEFAULT_ORCHESTRATOR, ...options.orchestrator }
  const { now, advance } = createClock(options.now ?? systemClock)
  const recorder = createRecorder(options.keepTickets ?? 10_000)
  const signer = createSigner(options, now, recorder)
  const server = createSignerServer({
    routes: {
      '/generate-live-payment': signer.generateLivePayment,
      '/sign-orchestrator-info': signer.signOrchestratorInfo,
    },
    flatErrors: signer.dialect.successor,
    onAnswer: recorder.answer,
  })
  let url = ''

  async function start(): Promise<{ url: string }> {
    const { host = '127.0.0.1' } = options
    const port = await listen(server, options.port ?? 0, host)
    url = `http://${host.includes(':') ? `[${host}]` : host}:${port}`
    return { url }
  }

  async function stop(): Promise<void> {
    await close(server)
    await signer.queue.stop()
    signer.closeWebhook()
  }

  return {
    start,
    stop,
    pay: (request = {}) =>
      callSigner(`${url}/generate-live-payment`, payBody(request, orchestrator), request),
    advance,
    demandRefresh: (calls = 1) => signer.demandRefresh(calls),
    seal: (state) => signer.box.seal({ ...openState(orchestrator, now()), ...state }),
    stats: () => recorder.read(signer.queue.stats()),
    flush: signer.queue.flush,
  }
}
