import type { AccountCaller, OperatorCaller } from '../../rpc/callers.ts'
import { parseReadable } from '../../shared/text.ts'

/** Who decides about an event in quarantine. */
export interface Author {
  /** The name that the event's row shows. */
  readonly name: string
  /** The actor in the audit log. */
  readonly actor: string
}

/** The author that an operator's command names, or the platform admin. Throws REQUEST_INVALID. */
export function parseAuthor(caller: AccountCaller | OperatorCaller, named: string): Author {
  if (caller.kind === 'account') return { name: caller.email, actor: caller.accountId }
  const name = parseReadable(named, { field: 'author' })
  return { name, actor: `operator:${name}` }
}
