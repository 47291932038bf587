import { MailServiceService } from '../../proto/gen/ts-proto/tollgate/mail/v1/mail.ts'
import { grpcService } from '../rpc/serve.ts'
import type { Shared } from '../shared/shared.ts'
import type { MailConfig } from './config.ts'
import { createMails } from './mails.ts'
import { createMailMetrics } from './metrics.ts'
import { createMailRpc } from './rpc.ts'
import { createNotices } from './notices.ts'
import { createSender } from './sender.ts'
import { createSmtp } from './smtp.ts'
import { countWaiting } from './store.ts'

export { sealedMails } from './store.ts'

/** Mails to people. `api.destinations` send the mails of the outbox. */
export function createMailModule(shared: Shared, config: MailConfig) {
  const { pool } = shared
  const { publicUrl } = shared.config
  const meters = createMailMetrics(shared.metrics, { waiting: () => countWaiting(pool) })
  const mails = createMails({ ...shared, config, publicUrl, meters })
  const smtp = createSmtp({ ...config, publicUrl })
  const notices = createNotices({ ...shared, mails })
  const { mailService } = createMailRpc(mails)
  return {
    api: { mails, destinations: [createSender({ ...shared, smtp, meters }), notices.destination] },
    services: [grpcService(MailServiceService, mailService)],
    upkeep: [mails.deleteOld, notices.mailExpiringSecrets],
  }
}
