import { InvoiceServiceService } from '../../../proto/gen/ts-proto/tollgate/billing/v1/invoices.ts'
import { grpcService } from '../../rpc/serve.ts'
import type { Shared } from '../../shared/shared.ts'
import { type IssuingDeps, createIssuing } from './issuing.ts'
import { type NotesDeps, createNotes } from './notes.ts'
import { type ReadsDeps, createInvoiceReads } from './reads.ts'
import { createRecompute } from './recompute.ts'
import { createInvoicesRpc } from './rpc.ts'

export interface InvoicesDeps
  extends
    Pick<ReadsDeps, 'users' | 'findOwnerAccount'>,
    Pick<NotesDeps, 'markInvoiced' | 'endCollection'> {
  readonly ledger: IssuingDeps['ledger'] & NotesDeps['ledger']
}

/** Issues, corrects and shows invoices. */
export function createInvoicesPart(shared: Shared, deps: InvoicesDeps) {
  const { publicUrl } = shared.config
  const { issue } = createIssuing(deps)
  const notes = createNotes({ ...shared, ...deps })
  const reads = createInvoiceReads({ ...shared, ...deps, publicUrl })
  const { invoiceService } = createInvoicesRpc({ reads, notes })
  return {
    issue,
    bookReturn: notes.bookReturn,
    recompute: createRecompute(deps.ledger),
    services: [grpcService(InvoiceServiceService, invoiceService)],
  }
}
