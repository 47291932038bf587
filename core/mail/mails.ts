import { uuidV7 } from '../lib/crypto.ts'
import type { Db } from '../lib/sql.ts'
import { addSeconds } from '../lib/time.ts'
import { enqueue } from '../shared/outbox/outbox.ts'
import type { NewEntry } from '../shared/outbox/types.ts'
import type { Shared } from '../shared/shared.ts'
import { deleteInBatches } from '../shared/upkeep.ts'
import { type MailConfig, type MailDelivery, chooseDelivery } from './config.ts'
import {
  type MailKind,
  findBound,
  isLink,
  keptSeconds,
  lifetimeSeconds,
  linkSeconds,
} from './kinds.ts'
import {
  type Letter,
  packLetter,
  renderText,
  toSubject,
  unpackLetter,
  withoutSecrets,
} from './letter.ts'
import { type MailContent, composeLetter } from './letters.ts'
import type { MailMetrics } from './metrics.ts'
import * as store from './store.ts'

export type MailsDeps = Pick<Shared, 'pool' | 'log' | 'now' | 'sealing'> & {
  readonly config: MailConfig
  /** Origin of our pages. */
  readonly publicUrl: string
  readonly meters: MailMetrics
}

/** A mail to one person. */
export interface OutgoingMail {
  readonly content: MailContent
  readonly email: string
  /** Names the cause: a cause with several attempts sends one mail. Default is unique. */
  readonly once?: string
  /** When the content is out of date. At most a day from now, which is the default. */
  readonly expiresAt?: Date
}

export const mailKind = 'mail'

export const toEntry = (id: string): NewEntry => ({
  kind: mailKind,
  payload: Buffer.from(id),
  itemCount: 1,
})

const shownMax = 100

/** Mails to people (docs/mail.md). */
export function createMails({ pool, log, now, sealing, config, publicUrl, meters }: MailsDeps) {
  const delivery = (): MailDelivery => chooseDelivery(config)

  /**
   * Writes the mail in the caller's transaction, so that it is sent only if its cause commits.
   * Returns false if the mail was written before, if the address has had too many or the deployment
   * has sent too many, or if it sends none.
   */
  async function send(db: Db, mail: OutgoingMail): Promise<boolean> {
    const by = delivery()
    if (by === 'none') {
      logUnsent(mail, by)
      return false
    }
    const { email, content } = mail
    const { kind } = content
    const at = now()
    const id = uuidV7(at.getTime())
    const once = mail.once ?? id
    const limit = await findLimit(db, { kind, email, at })
    if (limit !== null) {
      // The row keeps the cause from being tried again and again.
      if (await store.insertLimited(db, { id, kind, once, email, at }, limit)) {
        meters.ended(limit)
        log.warn({ kind, reason: store.limits[limit] }, 'a mail was not sent')
      }
      return false
    }
    const isNew = await store.insertMail(db, {
      id,
      kind,
      once,
      email,
      status: by === 'smtp' ? 'waiting' : 'kept',
      sealedLetter: sealing.seal(packLetter(letterOf(mail)), store.placeOfLetter(id)),
      at,
      expiresAt: mail.expiresAt ?? addSeconds(at, lifetimeSeconds),
    })
    if (isNew && by === 'smtp') await enqueue(db, [toEntry(id)], at)
    if (isNew && by === 'page') logUnsent(mail, by)
    return isNew
  }

  /** Returns the limit that the mail is above; null if it may be sent. */
  async function findLimit(
    db: Db,
    { kind, email, at }: { kind: MailKind; email: string; at: Date },
  ): Promise<store.Limit | null> {
    const { kinds, max, seconds } = findBound(kind)
    const since = addSeconds(at, -seconds)
    if ((await store.countTo(db, { email, kinds, since })) >= max) return 'limited'
    if (!isLink(kind)) return null
    const { linksPerHour } = config
    const lately = { kind, since: addSeconds(at, -linkSeconds), max: linksPerHour }
    return (await store.countOfKind(db, lately)) >= linksPerHour ? 'capped' : null
  }

  const letterOf = ({ content }: OutgoingMail): Letter => composeLetter(content, publicUrl)

  function logUnsent(mail: OutgoingMail, by: MailDelivery): void {
    meters.ended('unsent')
    const letter = letterOf(mail)
    const { subject } = letter
    const facts = { kind: mail.content.kind, email: mail.email, subject }
    const text = by === 'page' ? { text: renderText(withoutSecrets(letter)) } : {}
    log.info({ ...facts, ...text }, 'a mail was not sent, because SMTP_URL is not set')
  }

  /** Lists the newest mails; those that are kept with their text. */
  async function list() {
    const rows = await store.listMails(pool, shownMax)
    return rows.map(({ sealedLetter, ...mail }) => {
      const isKept = mail.status === 'kept' && sealedLetter !== null
      return { ...mail, ...(isKept ? readKept(mail.id, sealedLetter) : {}) }
    })
  }

  function readKept(id: string, sealedLetter: Buffer) {
    const letter = unpackLetter(sealing.unseal(sealedLetter, store.placeOfLetter(id)))
    return { subject: toSubject(letter), text: renderText(letter) }
  }

  /** Upkeep: deletes old rows. */
  const deleteOld = (): Promise<void> =>
    deleteInBatches((limit) => store.deleteOld(pool, addSeconds(now(), -keptSeconds), limit))

  return { delivery, send, list, deleteOld }
}

export type Mails = ReturnType<typeof createMails>
