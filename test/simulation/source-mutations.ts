import { registerHooks } from 'node:module'

/** A defect in one line of the code under test, which is changed when the file is loaded. */
export interface SourceMutation {
  readonly file: string
  readonly from: string
  readonly to: string
}

const escrow = 'core/allowances/escrow'

/** Defects that `checks.ts` finds, and those without a check, which simulations find. */
export const sourceMutations: Readonly<Record<string, SourceMutation>> = {
  'frees usage that was not reported when a lease is returned': {
    file: `${escrow}/reports/reporting.ts`,
    from: 'const stays = unreported > 0n ? unreported : 0n',
    to: 'const stays = 0n',
  },
  'ends leases at core without a grace': {
    file: `${escrow}/lending.ts`,
    from: 'graceSeconds = 6',
    to: 'graceSeconds = 0',
  },
  'renews a lease that was recalled': {
    file: `${escrow}/lending.ts`,
    from: 'own.recalledAt !== null || own.endsAt <= at',
    to: 'own.endsAt <= at',
  },
  'renews a lease that has ended': {
    file: `${escrow}/lending.ts`,
    from: 'own.recalledAt !== null || own.endsAt <= at',
    to: 'own.recalledAt !== null',
  },
  'believes what was used of another lease': {
    file: `${escrow}/lending.ts`,
    from: 'leaseId !== lease.id || used < lease.used',
    to: 'used < lease.used',
  },
  'lends more than a quarter of what is free': {
    file: `${escrow}/slices.ts`,
    from: 'const slice = min(useful, most)',
    to: 'const slice = useful',
  },
  'lends to a user whose money was just recalled': {
    file: `${escrow}/lending.ts`,
    from: 'if (account.lendAfter !== null && account.lendAfter > at) return null',
    to: '',
  },
  'keeps the ratio of a lease that only serves until its end': {
    file: `${escrow}/lending.ts`,
    from: 'if (retailRatio < lease.retailRatio) {',
    to: 'if (retailRatio < 0n) {',
  },
  'lends from credit that ends before the lease': {
    file: `${escrow}/lending.ts`,
    from: 'until: toAppTime(account, endsAt),',
    to: 'until: toAppTime(account, at),',
  },
  'reserves more than is free': {
    file: `${escrow}/escrow.ts`,
    from: 'if (call.bound > free) {',
    to: 'if (call.bound > free * 2n) {',
  },
  'holds only what the lease still has': {
    file: `${escrow}/reports/reporting.ts`,
    from: 'account.pending = usdAttos(account.pending + held)',
    to: 'account.pending = usdAttos(account.pending + part)',
  },
  'does not lower orphans by tickets': {
    file: `${escrow}/settlement.ts`,
    from: 'if (part <= 0n) return false',
    to: 'return false',
  },
  'releases right after a jump of the clock': {
    file: `${escrow}/release.ts`,
    from: 'if (due.at >= addSeconds(due.jumpedAt, unsureSeconds)) ',
    to: '',
  },
  'believes a stream clock that is later than now': {
    file: `${escrow}/due.ts`,
    from: 'addSeconds(at, skewSeconds)',
    to: 'addSeconds(at, 1e9)',
  },
  'reports the first bound for all calls of a run': {
    file: 'sidecar/accounts/report-entries.ts',
    from: 'boundUsdNanos: run.bounds.map(BigInt)',
    to: 'boundUsdNanos: run.bounds.map(() => BigInt(run.bounds[0] ?? 1))',
  },
  'frees a run with the first of its early tickets': {
    file: `${escrow}/reports/reporting.ts`,
    from: 'const open = run ? removeNumbers(run.open, early.numbers) : []',
    to: 'const open: { from: bigint; to: bigint }[] = []',
  },
  'moves the stream clock past calls of a run that are open': {
    file: `${escrow}/reports/reporting.ts`,
    from: 'held === null && lastAt ? lastAt : authorisedAt',
    to: 'lastAt ?? authorisedAt',
  },
  'takes a process that waits with its reports to have none': {
    file: `${escrow}/reports/contact.ts`,
    from: 'completeAt: new Date(at.getTime() - unreportedMs),',
    to: 'completeAt: at,',
  },
  'takes a process to know of a session that was just joined': {
    file: `${escrow}/reports/contact.ts`,
    from: 'contact.sharedThrough >= sharedAt',
    to: 'contact',
  },
  'counts the bound from the last call with a number': {
    file: 'sidecar/accounts/session-calls.ts',
    from: 'else if (sequence === calls.top.sequence && isEarlier(call, calls.top)) calls.top = call',
    to: 'else if (sequence === calls.top.sequence) calls.top = call',
  },
  'pays for tickets with included usage of a later period': {
    file: 'core/allowances/account.ts',
    from: "if (credit.kind === 'included') return signedAt >= credit.effectiveAt.getTime()",
    to: "if (credit.kind === 'included') return true",
  },
}

/**
 * Changes the source of a file when this thread loads it. Throws unless the line occurs exactly
 * once.
 */
export function installSourceMutation({ file, from, to }: SourceMutation): void {
  const url = new URL(`../../${file}`, import.meta.url).href
  registerHooks({
    load(loaded, context, next) {
      const module = next(loaded, context)
      if (loaded !== url) return module
      const parts = String(module.source).split(from)
      if (parts.length !== 2) throw new Error(`${file} has ${parts.length - 1} times: ${from}`)
      return { ...module, source: parts.join(to) }
    },
  })
}
