import { backoffMs } from '../lib/loop.ts'
import { tx } from '../lib/sql.ts'
import { toReadable } from '../lib/text/readable.ts'
import { enqueue } from '../shared/outbox/outbox.ts'
import type { Delivery, Destination, Entry } from '../shared/outbox/types.ts'
import type { Shared } from '../shared/shared.ts'
import { type Letter, unpackLetter } from './letter.ts'
import { mailKind, toEntry } from './mails.ts'
import type { MailMetrics } from './metrics.ts'
import type { Smtp, SmtpResult } from './smtp.ts'
import * as store from './store.ts'

export type SenderDeps = Pick<Shared, 'pool' | 'log' | 'now' | 'sealing'> & {
  readonly smtp: Smtp
  readonly meters: MailMetrics
}

/** So that a slow answer to one mail keeps no other mail leased. */
const mailsAtOnce = 1
/** Pauses of one mail that the server will take later, such as by greylisting. */
const pauses = { firstMs: 60_000, lastMs: 3_600_000 }
const errorMax = 300

/**
 * Sends the mails of the outbox. While the server is unavailable, the outbox waits and tries again.
 * A mail that only its recipient's server postpones gets its own pauses. Mails are given up when
 * they expire, and at a permanent refusal.
 */
export function createSender({ pool, log, now, sealing, smtp, meters }: SenderDeps): Destination {
  async function deliver(entries: readonly Entry[], signal: AbortSignal): Promise<Delivery[]> {
    const deliveries: Delivery[] = []
    let unavailable: Delivery | null = null
    for (const entry of entries) {
      const delivery: Delivery =
        unavailable ?? (signal.aborted ? stopped : await deliverOne(entry.payload.toString()))
      if (delivery.kind === 'later') unavailable = delivery
      deliveries.push(delivery)
    }
    return deliveries
  }

  async function deliverOne(id: string): Promise<Delivery> {
    const mail = await store.findWaiting(pool, id)
    // Sent by a process that died before it could delete the row.
    if (!mail) return { kind: 'delivered' }
    if (mail.expiresAt <= now()) return giveUp(mail, 'it could not be sent in time')
    const letter = openLetter(mail)
    if (!letter) return giveUp(mail, 'its text cannot be read')
    return settle(mail, await smtp.send({ id, email: mail.email, letter }))
  }

  function openLetter({ id, sealedLetter }: store.WaitingMail): Letter | null {
    try {
      return unpackLetter(sealing.unseal(sealedLetter, store.placeOfLetter(id)))
    } catch (error) {
      log.error({ mailId: id, err: error }, 'a mail cannot be read')
      return null
    }
  }

  async function settle(mail: store.WaitingMail, result: SmtpResult): Promise<Delivery> {
    const { id, attempts } = mail
    if (result.kind === 'sent') {
      await store.endMail(pool, { id, status: 'sent', error: null, at: now() })
      meters.ended('sent')
      return { kind: 'delivered' }
    }
    meters.attemptFailed()
    const why = toReadable(result.why).slice(0, errorMax)
    if (result.kind === 'refused') return giveUp(mail, why)
    if (result.kind === 'unavailable') {
      await store.noteError(pool, id, why)
      return { kind: 'later', why }
    }
    // A new row, due later, so that this mail does not count as a delay of the outbox.
    await tx(pool, async (db) => {
      await store.countFailure(db, id, why)
      const at = new Date(now().getTime() + backoffMs(attempts + 1, pauses))
      await enqueue(db, [toEntry(id)], at)
    })
    return { kind: 'delivered' }
  }

  async function giveUp({ id, kind }: store.WaitingMail, error: string): Promise<Delivery> {
    await store.endMail(pool, { id, status: 'failed', error, at: now() })
    meters.ended('failed')
    log.error({ mailId: id, kind, why: error }, 'a mail was given up')
    return { kind: 'delivered' }
  }

  return {
    kind: mailKind,
    itemsAtOnce: mailsAtOnce,
    bytesAtOnce: 64 * 1024,
    ready: () => true,
    deliver,
  }
}

const stopped: Delivery = { kind: 'later', why: 'core stops' }
