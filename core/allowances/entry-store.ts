import { type RowBuffer, copyRows, createRowBuffer, uuidBytes } from '../lib/copy-sql.ts'
import type { Db } from '../lib/sql.ts'
import type { Account, Entry } from './types.ts'

const entryBytes = 256
const entryColumns = `app_id, user_id, seq, kind, amount_attos, overage_attos, balance_after_attos, cause_id, created_at,
  ticket_count`

/** Writes the new entries of accounts. By COPY, which takes the thousand entries of a batch in half the time of an insert. */
export async function insertEntries(db: Db, accounts: readonly Account[]): Promise<void> {
  const rows = createRowBuffer(new ArrayBuffer(entryBytes * accounts.length))
  for (const account of accounts) {
    const [app, user] = [uuidBytes(account.appId), uuidBytes(account.userId)]
    for (const entry of account.entries) writeEntry(rows, { app, user, entry })
  }
  await copyRows(db, `ledger_entries (${entryColumns})`, rows.slice(0, rows.end()))
}

function writeEntry(
  rows: RowBuffer,
  { app, user, entry }: { app: Buffer; user: Buffer; entry: Entry },
): void {
  rows.row(10)
  rows.uuid(app)
  rows.uuid(user)
  rows.int8(entry.seq)
  rows.text(entry.kind)
  rows.numeric(String(entry.amount))
  rows.numeric(String(entry.overage))
  rows.numeric(String(entry.balanceAfter))
  rows.uuid(uuidBytes(entry.causeId))
  rows.instant(entry.createdAt.getTime() * 1000)
  if (entry.tickets === undefined) rows.none()
  else rows.int4(entry.tickets)
}
