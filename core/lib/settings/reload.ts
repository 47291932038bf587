import type { EnvReader } from '../env.ts'
import type { Log } from '../log.ts'

export interface ReloadOptions {
  /** The settings as read at the start. */
  readonly current: EnvReader
  /** Reads all settings again, in the same order. Rejects with all problems of their sources. */
  readonly read: () => Promise<EnvReader>
  /** Called with new values in use, before the change is logged. */
  readonly onReloaded?: () => void
  readonly log: Log
}

/** Names of settings that a reload found changed. */
export interface ChangedSettings {
  /** Settings with a new value in use. */
  readonly reloaded: readonly string[]
  /** Settings whose new value needs a restart. */
  readonly needRestart: readonly string[]
}

/**
 * Listens for SIGHUP from now on, so that it never ends the process, and returns the function that
 * sets how to reload. A signal before that reloads as soon as it is set. Signals during a reload
 * cause one more.
 */
export function onReloadSignal(): (options: ReloadOptions) => void {
  let options: ReloadOptions | null = null
  let isWanted = false
  let isRunning = false

  async function run(): Promise<void> {
    isWanted = true
    if (isRunning || options === null) return
    isRunning = true
    while (isWanted) {
      isWanted = false
      await reload(options)
    }
    isRunning = false
  }

  process.on('SIGHUP', () => void run())
  return (ready) => {
    options = ready
    if (isWanted) void run()
  }
}

/**
 * Reads the settings again and logs what changed, by name. With any problem, all settings keep
 * their values.
 */
async function reload({ current, read, onReloaded, log }: ReloadOptions): Promise<void> {
  try {
    const next = await read()
    if (next.problems.length > 0) return logProblems(log, next.problems)
    const { reloaded, needRestart } = applyReload(current, next)
    onReloaded?.()
    log.info({ reloaded, needRestart }, messageOf({ reloaded, needRestart }))
  } catch (error) {
    const errors: readonly unknown[] = error instanceof AggregateError ? error.errors : [error]
    logProblems(
      log,
      errors.map((each) => (each instanceof Error ? each.message : String(each))),
    )
  }
}

const logProblems = (log: Log, problems: readonly string[]): void =>
  log.error(
    { problems },
    `the settings were not reloaded, and the earlier ones stay in use: ${problems.join('; ')}`,
  )

function messageOf({ reloaded, needRestart }: ChangedSettings): string {
  const parts = [
    reloaded.length > 0 ? `reloaded ${reloaded.join(', ')}` : '',
    needRestart.length > 0 ? `changed, but need a restart: ${needRestart.join(', ')}` : '',
  ].filter(Boolean)
  return parts.length > 0 ? `settings ${parts.join('; ')}` : 'settings reloaded: none changed'
}

/**
 * Gives the live values of `current` their values in `next`. A setting that is also read outside of
 * a live value, or whose fixed part changed, needs a restart.
 */
export function applyReload(current: EnvReader, next: EnvReader): ChangedSettings {
  const before = valuesOf(current)
  const after = valuesOf(next)
  const changed = [...new Map([...before, ...after]).keys()].filter(
    (name) => before.get(name) !== after.get(name),
  )
  const applied = new Set<string>()
  for (const { cell, twin } of pairs(current, next)) {
    if (!cell.names.some((name) => changed.includes(name))) continue
    if (cell.fixedPart !== twin.fixedPart) continue
    cell.value = twin.value
    for (const name of cell.names) applied.add(name)
  }
  const isReloaded = (name: string): boolean => applied.has(name) && !current.isFixed(name)
  const reloaded = changed.filter(isReloaded).toSorted()
  current.adopt(next, reloaded)
  return { reloaded, needRestart: changed.filter((name) => !isReloaded(name)).toSorted() }
}

/** Each live value of `current` with the one that `next` read from the same settings. */
function pairs(current: EnvReader, next: EnvReader) {
  const twins = Map.groupBy(next.cells, keyOf)
  return current.cells.flatMap((cell) => {
    const twin = twins.get(keyOf(cell))?.shift()
    return twin ? [{ cell, twin }] : []
  })
}

const keyOf = ({ names }: { readonly names: readonly string[] }): string => names.join()

const valuesOf = ({ settings }: EnvReader): Map<string, string> =>
  new Map(settings.map(({ name, value }) => [name, value]))
