import { Agent, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { Stripe } from 'stripe'
import type { Plane } from '../../../core/billing/processor/port.ts'

export interface FakeEvent {
  readonly id: string
  readonly object: 'event'
  readonly type: string
  readonly created: number
  readonly livemode: boolean
  readonly api_version: string
  readonly account?: string
  readonly data: { readonly object: object; readonly previous_attributes?: object }
}

export interface Endpoint {
  readonly url: string
  readonly secret: string
  readonly plane: Plane
  /** Whether it gets the events of connected accounts, or those of the platform's own. */
  readonly isConnect: boolean
  /** Types that it gets. Default is all. */
  readonly types?: readonly string[]
}

/** How often and how late an event is sent. Default is once, immediately. */
export interface DeliveryPlan {
  readonly copies?: number
  readonly delayMs?: number
}

const runningMax = 32
const eventsMax = 50_000
const triesMax = 5
const timeoutMs = 10_000

interface Delivery {
  readonly event: FakeEvent
  readonly endpoint: Endpoint
  readonly delayMs: number
}

/**
 * Sends events to endpoints, signed as by Stripe, and again after an answer other than 2xx. Tests
 * drop, delay and double them by `plan`, or hold them and release them in another order.
 */
export function createWebhooks({ nowMs, retryMs }: { nowMs: () => number; retryMs: number }) {
  const endpoints: Endpoint[] = []
  const events: FakeEvent[] = []
  let held: Delivery[] | null = null
  let queue: Delivery[] = []
  let running = 0
  let isStopped = false
  const idlers: (() => void)[] = []
  const agent = new Agent({ keepAlive: true, maxSockets: runningMax })

  const webhooks = {
    /** The newest events, at most 50,000. */
    events,
    /** Answers of the endpoints: status, or 0 without an answer. */
    answers: new Map<number, number>(),
    plan: (() => ({})) as (event: FakeEvent) => DeliveryPlan,
    add: (endpoint: Endpoint): void => void endpoints.push(endpoint),
    hold: (): void => void (held ??= []),
    /** Sends what was held, in the order that `order` returns. */
    release: (order: (held: readonly FakeEvent[]) => readonly FakeEvent[] = (all) => all): void => {
      const waiting = held ?? []
      held = null
      for (const event of order([...new Set(waiting.map(({ event }) => event))])) send(event)
    },
    /** Sends an event to its endpoints, again. */
    send,
    /** Resolves when every delivery has been answered or given up. */
    idle: async (): Promise<void> => {
      if (running + queue.length > 0) await new Promise<void>((resolve) => idlers.push(resolve))
    },
    stop: (): void => {
      isStopped = true
      queue = []
      agent.destroy()
    },
    emit,
  }
  return webhooks

  function emit(event: FakeEvent): void {
    events.push(event)
    if (events.length > eventsMax) events.shift()
    send(event)
  }

  function send(event: FakeEvent): void {
    const { copies = 1, delayMs = 0 } = webhooks.plan(event)
    const targets = endpoints.filter(
      ({ plane, isConnect, types }) =>
        (plane === 'live') === event.livemode &&
        isConnect === (event.account !== undefined) &&
        (types?.includes(event.type) ?? true),
    )
    for (const endpoint of targets) {
      for (let copy = 0; copy < copies; copy++) {
        const delivery = { event, endpoint, delayMs }
        if (held) held.push(delivery)
        else queue.push(delivery)
      }
    }
    pump()
  }

  function pump(): void {
    while (running < runningMax) {
      const delivery = queue.shift()
      if (delivery === undefined) break
      running++
      void deliver(delivery).finally(() => {
        running--
        pump()
      })
    }
    if (running + queue.length === 0) for (const resolve of idlers.splice(0)) resolve()
  }

  async function deliver({ event, endpoint, delayMs }: Delivery): Promise<void> {
    if (delayMs > 0) await sleep(delayMs)
    const payload = JSON.stringify(event)
    for (let attempt = 0; attempt < triesMax; attempt++) {
      if (attempt > 0) await sleep(retryMs * 2 ** (attempt - 1))
      if (isStopped) return
      const status = await post(endpoint, payload)
      webhooks.answers.set(status, (webhooks.answers.get(status) ?? 0) + 1)
      if (status >= 200 && status < 300) return
    }
  }

  /** Resolves with the status, or 0 without an answer. */
  function post({ url, secret }: Endpoint, payload: string): Promise<number> {
    const timestamp = Math.floor(nowMs() / 1000)
    const headers = {
      'content-type': 'application/json; charset=utf-8',
      'content-length': Buffer.byteLength(payload),
      'stripe-signature': signEvent(payload, secret, timestamp),
    }
    // Half the time of fetch, which counts in tests with many thousand events.
    return new Promise((resolve) => {
      const options = { method: 'POST', agent, headers, timeout: timeoutMs }
      const sent = request(url, options, (response) => {
        response.resume()
        response.on('end', () => resolve(response.statusCode ?? 0))
        response.on('error', () => resolve(0))
      })
      sent.on('timeout', () => sent.destroy())
      sent.on('error', () => resolve(0))
      sent.end(payload)
    })
  }
}

export type Webhooks = ReturnType<typeof createWebhooks>

export const signEvent = (payload: string, secret: string, timestamp: number): string =>
  Stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp })
