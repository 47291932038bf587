import type { Db } from '../../lib/sql.ts'
import * as store from './store.ts'

export interface AppAuditFilter extends store.AppAuditPage {
  readonly isOldestFirst: boolean
}

/** A page of the entries of an app; one entry more than the limit when there are more. */
export const listEntries = (
  db: Db,
  { isOldestFirst, ...page }: AppAuditFilter,
): Promise<store.AuditRow[]> =>
  isOldestFirst ? store.listOldest(db, page) : store.listNewest(db, page)
