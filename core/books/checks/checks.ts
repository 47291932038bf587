import { randomUUID } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { addSeconds } from '../../lib/time.ts'
import type { Shared } from '../../shared/shared.ts'
import * as store from './store.ts'
import type { CheckName, CheckOutcome, Finding, Run, StoredRun } from './store.ts'

/** Receives what a check does and finds. */
export interface CheckReport {
  readonly progress: (text: string) => void
  readonly addFinding: (finding: Finding) => void
}

/** Runs to its end, or ends early when `signal` aborts. Returns a summary. */
export type RunCheck = (report: CheckReport, signal: AbortSignal) => Promise<string>

export interface Check {
  readonly run: RunCheck
  /** Throws if the deployment has nothing to compare with. */
  readonly requireConfigured: () => void
}

export interface ChecksDeps extends Pick<Shared, 'pool' | 'now' | 'log'> {
  readonly checks: Readonly<Record<CheckName, Check>>
}

export interface LastRun extends Pick<StoredRun, 'startedAt' | 'startedBy' | 'progress'> {
  readonly state: 'running' | 'ended' | 'interrupted'
  readonly endedAt: Date | null
  readonly outcome: CheckOutcome | null
}

export interface CheckState {
  readonly name: CheckName
  readonly isConfigured: boolean
  /** Null before the first run. */
  readonly last: LastRun | null
}

/** More findings do not help an operator: so many have one cause. */
const findingsMax = 200
const runMs = 900_000
const beatMs = 3_000
/** A run that was not seen for so long has ended with its core. */
const deadSeconds = 60

/**
 * Checks that run in the background of the core that got the request, one run of each check at a
 * time in all cores. The database has the last run of each.
 */
export function createChecks({ pool, now, log, checks }: ChecksDeps) {
  const stopping = new AbortController()
  const running = new Set<Promise<void>>()

  /** Throws CONFLICT while the check is running, and the reason if it has nothing to compare with. */
  async function start(name: CheckName, startedBy: string): Promise<void> {
    checks[name].requireConfigured()
    const run = { name, runId: randomUUID(), startedAt: now(), startedBy }
    if (!(await store.insertRun(pool, run, addSeconds(run.startedAt, -deadSeconds))))
      throw new DomainError('CONFLICT', 'this check is running already')
    const work = runToEnd(run).catch((error: unknown) =>
      log.error({ err: error, check: name }, 'the result of a check was lost'),
    )
    running.add(work)
    void work.finally(() => running.delete(work))
  }

  async function runToEnd(run: Run): Promise<void> {
    const replaced = new AbortController()
    const limits = [stopping.signal, replaced.signal, AbortSignal.timeout(runMs)]
    const signal = AbortSignal.any(limits)
    const findings: Finding[] = []
    const state = { progress: '', total: 0 }
    const beat = setInterval(() => saveState(run, state, replaced), beatMs)
    const report = {
      progress: (text: string) => {
        state.progress = text
      },
      addFinding: (finding: Finding) => {
        state.total += 1
        if (findings.length < findingsMax) findings.push(finding)
      },
    }
    const { summary, failure } = await settle(run.name, () => checks[run.name].run(report, signal))
    clearInterval(beat)
    const stopped = signal.aborted ? stopReason() : null
    // A run that is stopped may fail for that: the failure would hide the reason.
    const outcome = { summary, findings, total: state.total, failure: stopped ?? failure }
    await store.saveOutcome(pool, run, { outcome, at: now() })
  }

  /** Stores the progress. Stops the run when another one has replaced it. */
  function saveState(
    run: Run,
    { progress }: { readonly progress: string },
    replaced: AbortController,
  ): void {
    store.saveProgress(pool, run, { progress, at: now() }).then(
      (isOurs) => {
        if (!isOurs) replaced.abort()
      },
      // The next attempt follows in a few seconds.
      () => {},
    )
  }

  const stopReason = (): string =>
    stopping.signal.aborted
      ? 'core stopped before the check had ended; start it again'
      : `it did not end within ${runMs / 60_000} minutes; use the command line`

  async function settle(
    name: CheckName,
    work: () => Promise<string>,
  ): Promise<{ readonly summary: string; readonly failure: string | null }> {
    try {
      return { summary: await work(), failure: null }
    } catch (error) {
      if (error instanceof DomainError) return { summary: '', failure: error.message }
      log.warn({ err: error, check: name }, 'a check failed')
      return { summary: '', failure: 'an internal error, which is in the log of core' }
    }
  }

  async function list(): Promise<CheckState[]> {
    const deadBefore = addSeconds(now(), -deadSeconds)
    const runs = new Map((await store.listRuns(pool)).map((run) => [run.name, run]))
    return store.checkNames.map((name) => {
      const run = runs.get(name)
      return {
        name,
        isConfigured: isConfigured(checks[name]),
        last: run === undefined ? null : { ...run, state: stateOf(run, deadBefore) },
      }
    })
  }

  async function stop(): Promise<void> {
    stopping.abort()
    await Promise.all(running)
  }

  return { start, list, stop }
}

export type Checks = ReturnType<typeof createChecks>

function stateOf({ endedAt, seenAt }: StoredRun, deadBefore: Date): LastRun['state'] {
  if (endedAt !== null) return 'ended'
  return seenAt < deadBefore ? 'interrupted' : 'running'
}

function isConfigured({ requireConfigured }: Check): boolean {
  try {
    requireConfigured()
    return true
  } catch {
    return false
  }
}
