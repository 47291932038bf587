import type { Db } from '../../lib/sql.ts'
import * as store from './store.ts'

export interface AppAuditFilter extends store.AppAuditPage {
  readonly isOldestFirst: boolean
}

/** A page of an app's entries. Has one entry more than the limit if there are more. */
export const listEntries = (
  db: Db,
  { isOldestFirst, ...page }: AppAuditFilter,
): Promise<store.AuditRow[]> =>
  isOldestFirst ? store.listOldest(db, page) : store.listNewest(db, page)
