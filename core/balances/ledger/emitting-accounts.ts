import { emitAll } from '../../shared/events.ts'
import { type AccountStore, sqlStore } from '../accounts/accounts.ts'
import { watchCrossings } from '../accounts/crossings.ts'

/** Accounts in PostgreSQL. Emits the events of balances that run out or return. */
export const accountStore: AccountStore = watchCrossings<AccountStore>(sqlStore, emitAll)
