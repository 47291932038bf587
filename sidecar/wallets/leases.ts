import { spentRefusal } from '../decision/refusals.ts'
import { DomainError } from '../../proto/errors.ts'
import type {
  LendAnswer,
  LendCall,
  LendResponse,
  Rate,
  SidecarProcess,
} from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type { Versions } from '../cache/cached-state.ts'
import type { Account, Accounts } from './accounts.ts'
import type { Gather } from '../core/batcher.ts'
import type { CurrentRate } from './bounds.ts'
import type { EscrowCore } from '../core/escrow.ts'
import { nanosDown, nanosPerWei, toAttos } from './nanos.ts'
import { type OpenLeasesOptions, createOpenLeases } from './open-leases.ts'

/** The purpose of a Lend. */
export interface LendQuery {
  /** Nano-dollars of the current call; 0 when not known. */
  readonly bound: number
  /**
   * Also fetches the prior call of this session: the one with the highest number below `sequence`.
   */
  readonly session?: { readonly id: string; readonly sequence: number }
}

export interface LeasesOptions extends OpenLeasesOptions {
  readonly core: Pick<EscrowCore, 'lend' | 'within'>
  readonly process: SidecarProcess
  readonly accounts: Accounts
  readonly versions: Versions
  readonly rate: CurrentRate
  readonly gather: Gather
}

/** How long no Lend is sent after core lent nothing. */
const reserveMs = 5_000
/** Kept small, because core locks the users of a request until it has answered. */
const maxCalls = 100

/**
 * Opens and renews leases of users' money at core (docs/escrow.md, "Lease"). All amounts are
 * cumulative, and a lease's end is counted from before the request, so a lost or late answer does
 * no harm.
 */
export function createLeases(options: LeasesOptions) {
  const { core, process, accounts, versions, reports, rate, mono } = options
  const open = createOpenLeases(options)
  const lendCall = options.gather<LendCall, LendAnswer>({ send: sendCalls, max: maxCalls })

  async function sendCalls(calls: LendCall[]): Promise<LendAnswer[]> {
    const response: LendResponse = await core.lend({ sidecar: process, calls })
    setRate(response.rate)
    return response.answers
  }

  function setRate(current: Rate | undefined): void {
    const nanos = current ? nanosPerWei(current.usdAttosPerEth) : 0
    rate.nanosPerWei = Number.isFinite(nanos) && nanos > 0 ? nanos : null
    rate.attosPerEth = current && rate.nanosPerWei !== null ? BigInt(current.usdAttosPerEth) : 0n
    rate.observedAt = Number(current?.observedAt ?? 0n)
    rate.isRaised = current?.raised ?? false
  }

  /**
   * Opens or renews the lease of a user, and stores core's answer about them. Runs once at a time
   * per user; callers without a session share the Lend in flight. Throws when core does not answer
   * while a decision may wait; a later answer still serves the calls that follow.
   */
  async function lend(account: Account, query: LendQuery): Promise<LendAnswer | null> {
    if (account.lending && !query.session) {
      await core.within(account.lending)
      return null
    }
    while (account.lending) await core.within(account.lending.catch(() => undefined))
    const flight = lendNow(account, query).finally(() => {
      account.lending = null
      if (account.isRecalled || reports.isRefused()) open.giveBack(account)
    })
    account.lending = flight
    return core.within(flight)
  }

  async function lendNow(account: Account, query: LendQuery): Promise<LendAnswer> {
    await reports.join()
    await reports.returned(account)
    if (account.evicted) throw new DomainError('UNAVAILABLE', 'the account was forgotten meanwhile')
    const read = { at: mono(), version: versions.current() }
    const answer = await lendCall(callOf(account, query, read.at))
    if (answer.refusal !== '') {
      accounts.learnUnknown(account, answer.refusal, read)
      open.giveBackNow(account)
      return answer
    }
    accounts.learn(account, answer, read)
    account.remaining = nanosDown(answer.remainingUsdAttos)
    account.remainingAt = read.at
    account.canSpend = answer.canSpend
    account.brokeRefusal = spentRefusal(answer.spendRefusal)
    account.ceilings = answer.ceilings
    if (answer.lease && answer.lease.id !== account.returnedLeaseId)
      open.renew(account, answer.lease, read.at)
    else {
      account.reserveUntil = mono() + reserveMs
      open.giveBackNow(account)
    }
    return answer
  }

  function callOf(account: Account, { bound, session }: LendQuery, at: number): LendCall {
    const { clientId, externalUserId, lease } = account
    return {
      clientId,
      externalUserId,
      leaseId: lease?.id ?? '',
      usedUsdAttos: toAttos(lease?.used ?? 0),
      boundUsdAttos: toAttos(Math.min(bound, Number.MAX_SAFE_INTEGER)),
      spendingUsdAttos: toAttos(measureSpending(account, at)),
      sessionId: session?.id ?? '',
      sequence: BigInt(session?.sequence ?? 0),
    }
  }

  /**
   * Renews leases in use: immediately when half is spent, and once a second those that are due by
   * time, because one transaction for many users costs little more than one for few. Reports their
   * calls first, so that core lends from the actual balance.
   */
  async function renewDue(): Promise<void> {
    const due = open.takeDue()
    if (due.length === 0) return
    for (const account of due) reports.takeRuns(account)
    await reports.flush()
    const renew = async (account: Account): Promise<void> => {
      if (account.lease) await lend(account, { bound: 0 }).catch(() => undefined)
    }
    await Promise.all(due.map(renew))
  }

  return { ...open, lend, setRate, renewDue }
}

export type Leases = ReturnType<typeof createLeases>

/**
 * Nano-dollars per second, measured by bounds. Follows a rise at once and halves at most on a fall.
 */
function measureSpending({ spending }: Account, at: number): number {
  const seconds = (at - spending.since) / 1000
  if (seconds < 1) return Math.max(spending.sum, spending.rate)
  spending.rate = Math.ceil(Math.max(spending.sum / seconds, spending.rate / 2))
  spending.sum = 0
  spending.since = at
  return spending.rate
}
