import { describe, expect, it } from 'vitest'
import { actionGroups } from '../../../gateway/web/audit/actions.ts'
import { audited } from '../../core/rpc/audited.ts'

/** Actions of an account, which are in no app's log. */
const ofAccounts = /^(account_|identity_linked$)/

describe('the actions in the filter of the audit log', () => {
  const offered = Object.values(actionGroups).flat()

  it('include each action of an app that an RPC records', () => {
    const recorded = Object.values(audited).flatMap((row) =>
      typeof row === 'object' && 'as' in row ? row.as : [],
    )
    const ofApps = recorded.filter((action) => !ofAccounts.test(action))
    expect(ofApps.length).toBeGreaterThan(50)
    expect(ofApps.filter((action) => !offered.includes(action))).toEqual([])
  })

  it('are each there once', () => {
    expect(offered.length).toBe(new Set(offered).size)
  })
})
