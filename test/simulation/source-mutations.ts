import { registerHooks } from 'node:module'

/** A defect in one line of the code under test, which is changed when the file is loaded. */
export interface SourceMutation {
  readonly file: string
  readonly from: string
  readonly to: string
}

const escrow = 'core/balances/escrow'
const accounts = 'core/balances/accounts'

/** Defects that `checks.ts` finds, and those without a check, which simulations find. */
export const sourceMutations: Readonly<Record<string, SourceMutation>> = {
  'frees usage that was not reported when a lease is returned': {
    file: `${escrow}/reports/reporting.ts`,
    from: 'const stays = unreported > 0n ? unreported : 0n',
    to: 'const stays = 0n',
  },
  'ends leases at core without a grace': {
    file: `${escrow}/granting/lending.ts`,
    from: 'graceSeconds = 6',
    to: 'graceSeconds = 0',
  },
  'leaves the leases of an owner that lost money': {
    file: `${escrow}/owner-recalls.ts`,
    from: 'if (owners.length === 0) return',
    to: 'if (owners.length >= 0) return',
  },
  'renews a lease that was recalled': {
    file: `${escrow}/granting/lending.ts`,
    from: 'own.recalledAt !== null || own.endsAt <= at',
    to: 'own.endsAt <= at',
  },
  'renews a lease that has ended': {
    file: `${escrow}/granting/lending.ts`,
    from: 'own.recalledAt !== null || own.endsAt <= at',
    to: 'own.recalledAt !== null',
  },
  'believes what was used of another lease': {
    file: `${escrow}/granting/lending.ts`,
    from: 'leaseId !== lease.id || used < lease.used',
    to: 'used < lease.used',
  },
  'lends more than a quarter of what is free': {
    file: `${escrow}/granting/slices.ts`,
    from: 'const slice = min(useful, most)',
    to: 'const slice = useful',
  },
  'lends to a user whose money was just recalled': {
    file: `${escrow}/granting/lending.ts`,
    from: 'if (account.lendAfter !== null && account.lendAfter > at) return null',
    to: '',
  },
  'keeps the ratio of a lease that only serves until its end': {
    file: `${escrow}/granting/lending.ts`,
    from: 'if (retailRatio < lease.retailRatio) {',
    to: 'if (retailRatio < 0n) {',
  },
  'lends from credit that ends before the lease': {
    file: `${escrow}/granting/lending.ts`,
    from: 'until: toAppTime(account, endsAt),',
    to: 'until: toAppTime(account, at),',
  },
  'reserves more than is free': {
    file: `${escrow}/granting/reserve.ts`,
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
    file: 'sidecar/wallets/report-entries.ts',
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
    file: 'sidecar/wallets/session-calls.ts',
    from: 'else if (sequence === calls.top.sequence && isEarlier(call, calls.top)) calls.top = call',
    to: 'else if (sequence === calls.top.sequence) calls.top = call',
  },
  'pays for tickets with included usage of a later period': {
    file: `${accounts}/credits.ts`,
    from: "if (credit.kind === 'included') return signedAt >= credit.effectiveAt.getTime()",
    to: "if (credit.kind === 'included') return true",
  },
  'lends a credit line that is owed': {
    file: `${accounts}/credit-line.ts`,
    from: 'account.ceiling - (owed > 0n ? owed : 0n)',
    to: 'account.ceiling',
  },
  'forgets what is lent against a credit line': {
    file: `${accounts}/credits.ts`,
    from: 'creditLine(account) - account.lent - account.pending',
    to: 'creditLine(account) - account.pending',
  },
  'forgets what is pending against a credit line': {
    file: `${accounts}/credits.ts`,
    from: 'creditLine(account) - account.lent - account.pending',
    to: 'creditLine(account) - account.lent',
  },
  'keeps the ceiling of a lost card': {
    file: `${accounts}/paying.ts`,
    from: 'account.ceiling = amount',
    to: 'if (amount > account.ceiling) account.ceiling = amount',
  },
  'takes no debt back with a refund': {
    file: `${accounts}/paying.ts`,
    from: 'account.collected + amount)',
    to: 'account.collected + (amount > 0n ? amount : 0n))',
  },
  'counts a payment of debt twice': {
    file: `${accounts}/paying.ts`,
    from: 'account.collected + amount)',
    to: 'account.collected + amount * 2n)',
  },
  'raises the ceiling by an overpayment': {
    file: `${accounts}/credit-line.ts`,
    from: 'account.ceiling - (owed > 0n ? owed : 0n)',
    to: 'account.ceiling - owed',
  },
  'does not recall leases when a ceiling is lowered': {
    file: 'core/balances/ledger/ledger.ts',
    from: 'return limitDebt(account, ceiling) && recall(db, account, at)',
    to: 'return limitDebt(account, ceiling) && false',
  },
  'reserves what the owner cannot pay': {
    file: `${escrow}/granting/reserve.ts`,
    from: 'if (room && !takeFrom(room, network)) {',
    to: 'if (room && !takeFrom(room, network) && network < 0n) {',
  },
  'lends without taking it from the owner': {
    file: `${escrow}/granting/lending.ts`,
    from: 'if (room && !takeFrom(room, networkCost(raise, retailRatio))) return null',
    to: '',
  },
  "forgets the platform's cut of what the owner pays": {
    file: 'core/balances/exposure/exposure.ts',
    from: 'divCeil(network * (wholeCut + cut), wholeCut)',
    to: 'network + cut * 0n',
  },
  'keeps leases that the owner can no longer pay': {
    file: `${escrow}/granting/lending.ts`,
    from: 'if (room && leftIn(room) < 0n) leases.recall(account, { missing: 0n, at })',
    to: '',
  },
  "relies on an owner's usage that ends before the booking": {
    file: 'core/balances/exposure/exposure.ts',
    from: 'until: toAppTime(account, until), nextIncluded: next',
    to: 'until: own, nextIncluded: next',
  },
  'takes nothing from the owner for a lease at a lower price': {
    file: `${escrow}/granting/lending.ts`,
    from: 'if (room && !takeFrom(room, more)) return null',
    to: 'if (more < 0n) return null',
  },
  'reserves against more than the next period includes': {
    file: `${accounts}/credits.ts`,
    from: 'least(spendableAt(ending, at), nextIncluded)',
    to: 'spendableAt(ending, at)',
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
