import { Counter, Gauge } from 'prom-client'
import { DomainError } from '../../../proto/errors.ts'
import { type Loop, backoffMs, startLoop } from '../../lib/loop.ts'
import { startAtZero } from '../../lib/metrics.ts'
import { addSeconds } from '../../lib/time.ts'
import type { Shared } from '../../shared/shared.ts'
import { deleteInBatches } from '../../shared/upkeep.ts'
import type { PaymentProcessor, ProcessorEvent } from '../processor/port.ts'
import * as store from './event-store.ts'
import type { StoredEvent } from './event-store.ts'

export interface EventsDeps extends Pick<Shared, 'pool' | 'log' | 'metrics' | 'now'> {
  readonly processor: Pick<PaymentProcessor, 'verifyEvent'>
  /** Does what an event asks for. Returns a word for the log. Throws if it must be tried again. */
  readonly handle: (event: ProcessorEvent) => Promise<string>
}

const bodyMax = 1024 * 1024
const claimSeconds = 120
const claimedAtOnce = 100
const parallel = 8
const pauseMs = 1_000
const keptDays = 90
const retries = { firstMs: 5_000, lastMs: 3_600_000 }

/**
 * Events of the payment processor. An event is stored before it is acknowledged, and handled
 * afterwards by any core, at least once. It never carries facts: handlers read the object again.
 */
export function createProcessorEvents({ pool, processor, handle, log, metrics, now }: EventsDeps) {
  let loop: Loop | undefined
  const registers = [metrics]
  const received = new Counter({
    name: 'tollgate_billing_processor_events_total',
    help: 'Events of the payment processor, by what happened to them',
    labelNames: ['result'],
    registers,
  })
  startAtZero(received, { result: ['stored', 'repeated', 'ignored', 'handled', 'failed'] })
  metrics.registerMetric(
    new Gauge({
      name: 'tollgate_billing_processor_events_age_seconds',
      help: 'Age of the oldest event of the payment processor that is not handled',
      registers: [],
      collect() {
        return store.waitingSince(pool).then(
          (since) =>
            this.set(since === null ? 0 : Math.max(0, (now().getTime() - since.getTime()) / 1000)),
          () => {},
        )
      },
    }),
  )

  /**
   * Verifies and stores an event. Throws SIGNATURE_INVALID for a forged or old one. Resolves when
   * the event is stored durably; a repeated one is stored once.
   */
  async function receive(body: Uint8Array, signature: string): Promise<void> {
    if (body.byteLength > bodyMax)
      throw new DomainError('REQUEST_INVALID', `an event has at most ${bodyMax} bytes`)
    await accept(processor.verifyEvent(body, signature, now()))
  }

  /** Stores a verified event. */
  async function accept(event: ProcessorEvent): Promise<void> {
    const isNew = await store.insertEvent(pool, event, now())
    received.inc({ result: !isNew ? 'repeated' : event.subject === null ? 'ignored' : 'stored' })
    if (isNew && event.subject !== null) loop?.wake()
  }

  /** Handles due events once. Returns their number. */
  async function round(): Promise<number> {
    const at = now()
    const until = addSeconds(at, claimSeconds)
    const events = await store.claimEvents(pool, { at, until, limit: claimedAtOnce })
    const queue = [...events]
    const work = async (): Promise<void> => {
      for (let event = queue.shift(); event !== undefined; event = queue.shift())
        await handleOne(event)
    }
    await Promise.all(Array.from({ length: Math.min(parallel, events.length) }, work))
    return events.length
  }

  async function handleOne(event: StoredEvent): Promise<void> {
    try {
      const outcome = await handle(event)
      await store.saveOutcome(pool, event, { outcome, dueAt: null, now: now() })
      received.inc({ result: 'handled' })
    } catch (error) {
      const outcome = error instanceof Error ? error.message : 'failed'
      const dueAt = new Date(now().getTime() + backoffMs(event.attempts, retries))
      log.warn(
        { err: error, eventId: event.id, type: event.type },
        'a processor event failed; it is tried again',
      )
      await store.saveOutcome(pool, event, { outcome, dueAt, now: now() })
      received.inc({ result: 'failed' })
    }
  }

  /** Handles events until none is due. */
  async function drain(): Promise<void> {
    while ((await round()) > 0);
  }

  function start(): void {
    loop = startLoop({ name: 'processor events', log, metrics, pauseMs, round: drain })
  }

  const stop = async (): Promise<void> => loop?.stop()

  /** Deletes handled events after 90 days. */
  const deleteOld = (): Promise<void> =>
    deleteInBatches((limit) =>
      store.deleteOldEvents(pool, addSeconds(now(), -keptDays * 86_400), limit),
    )

  return { receive, accept, drain, start, stop, deleteOld }
}

export type ProcessorEvents = ReturnType<typeof createProcessorEvents>
