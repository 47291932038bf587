import type * as pb from '../../proto/gen/ts-proto/tollgate/mail/v1/mail.ts'
import { gatewayCaller, platformAdmin } from '../rpc/guards.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import type { Mails } from './mails.ts'

export function createMailRpc(mails: Mails) {
  const mailService: Handlers<pb.MailServiceServer> = {
    getMailDelivery: rpc(gatewayCaller(), async (_request: pb.GetMailDeliveryRequest) => ({
      delivery: mails.delivery(),
    })),
    listMails: rpc(platformAdmin(), async (_request: pb.ListMailsRequest) => ({
      mails: (await mails.list()).map(({ createdAt, endedAt, lastError, ...mail }) => ({
        ...mail,
        error: lastError ?? undefined,
        createdAt: createdAt.toISOString(),
        endedAt: endedAt?.toISOString(),
      })),
    })),
  }
  return { mailService }
}
