import { isObject, parseJson } from '../lib/json.ts'
import { type Db, tx } from '../lib/sql.ts'
import { addSeconds } from '../lib/time.ts'
import { type QueuedEvent, type QueuedNotice, noticeKind } from '../shared/events.ts'
import type { Delivery, Destination, Entry } from '../shared/outbox/types.ts'
import type { Shared } from '../shared/shared.ts'
import type { MailContent } from './letters.ts'
import type { Mails } from './mails.ts'
import * as store from './notice-store.ts'

export type NoticesDeps = Pick<Shared, 'pool' | 'now'> & { readonly mails: Mails }

const entriesAtOnce = 50
const secretSeconds = 7 * 86_400
const secretsAtOnce = 100

/**
 * Mails owners what happens to their apps: to the account that pays, events of its balance and
 * payments; to every owner of an app, switched off webhook endpoints and secrets that expire. A
 * repetition sends nothing twice.
 */
export function createNotices({ pool, now, mails }: NoticesDeps) {
  async function deliver(entries: readonly Entry[]): Promise<Delivery[]> {
    const deliveries: Delivery[] = []
    for (const entry of entries) deliveries.push(await deliverOne(entry))
    return deliveries
  }

  async function deliverOne({ payload }: Entry): Promise<Delivery> {
    const notice = parseJson(payload.toString('utf8'))
    if (!isNotice(notice)) return { kind: 'refused', why: 'the row cannot be read' }
    if (mails.delivery() === 'none') return { kind: 'delivered' }
    return tx(pool, (db) => mailNotice(db, notice)).then(
      () => ({ kind: 'delivered' }),
      (error: unknown) => ({
        kind: 'failed',
        why: error instanceof Error ? error.message : 'failed',
      }),
    )
  }

  async function mailNotice(db: Db, notice: QueuedNotice): Promise<void> {
    const { id, appId, userId } = notice
    if (userId !== undefined) {
      const email = await store.findPayerEmail(db, { appId, userId })
      const content = payerContent(notice)
      if (email && content) await mails.send(db, { email, content, once: `${id}:${email}` })
      return
    }
    for (const { email, appName } of await store.listOwners(db, appId)) {
      const content = appContent(notice, appName)
      if (content) await mails.send(db, { email, content, once: `${id}:${email}` })
    }
  }

  /** Upkeep: mails owners of apps about secrets that expire within seven days, once each. */
  async function mailExpiringSecrets(): Promise<void> {
    if (mails.delivery() === 'none') return
    const at = now()
    const until = addSeconds(at, secretSeconds)
    const secrets = await store.listExpiringSecrets(pool, { at, until, limit: secretsAtOnce })
    for (const { once, email, ...secret } of secrets)
      await tx(pool, async (db) => {
        await mails.send(db, { email, content: { kind: 'secret_expiring', ...secret }, once })
      })
  }

  const destination: Destination = {
    kind: noticeKind,
    itemsAtOnce: entriesAtOnce,
    bytesAtOnce: 256 * 1024,
    ready: () => true,
    deliver,
  }
  return { destination, mailExpiringSecrets }
}

/** The mail about an event of the account that pays; null for other events. */
function payerContent({ type, data }: Pick<QueuedEvent, 'type' | 'data'>): MailContent | null {
  const balanceUsdMicros = String(data['balanceUsdMicros'] ?? '')
  if (type === 'balance.low') return { kind: 'balance_low', balanceUsdMicros }
  if (type === 'balance.depleted') return { kind: 'balance_gone' }
  if (type === 'access.lost') return { kind: 'access_lost' }
  if (type !== 'payment.failed') return null
  const amountUsd = data['amountUsd']
  const nextAttemptAt = data['nextAttemptAt']
  return {
    kind: 'payment_failed',
    amountUsd: typeof amountUsd === 'string' ? amountUsd : null,
    nextAttemptAt: typeof nextAttemptAt === 'string' ? new Date(nextAttemptAt) : null,
  }
}

function appContent(
  { type, data }: Pick<QueuedNotice, 'type' | 'data'>,
  appName: string,
): MailContent | null {
  if (type !== 'webhook_endpoint.disabled') return null
  const isGone = data['reason'] === 'gone'
  return { kind: 'webhook_disabled', appName, endpointId: String(data['endpointId']), isGone }
}

const isNotice = (value: unknown): value is QueuedNotice =>
  isObject(value) &&
  ['id', 'appId', 'type', 'timestamp'].every((name) => typeof value[name] === 'string') &&
  isObject(value['data'])
