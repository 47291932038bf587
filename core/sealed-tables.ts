import { sealedMails } from './mail/module.ts'
import { sealedReplies } from './shared/idempotency.ts'
import { sealedPeppers } from './shared/pepper-store.ts'
import type { SealedTable } from './shared/sealing/rewrap.ts'
import { sealedSigningKeys } from './tokens/module.ts'
import { sealedWebhookSecrets } from './webhooks/module.ts'

/** Every table with values that the key-encryption key seals. */
export const sealedTables: readonly SealedTable[] = [
  sealedSigningKeys,
  sealedWebhookSecrets,
  sealedMails,
  sealedPeppers,
  sealedReplies,
]
