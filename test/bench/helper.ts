import { fork, spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'

/** Figures by name, as a helper answers. */
export type Figures = Readonly<Record<string, number>>

export interface Helper {
  /** Its first message, sent when it was ready. */
  readonly ready: Figures
  /** Asks one question at a time. Rejects if the helper has exited. */
  ask(question: object): Promise<Figures>
  stop(): Promise<void>
}

export interface HelperOptions {
  /** Path of the program, relative to this file. */
  readonly program: string
  readonly args: readonly string[]
  readonly nodeOptions?: readonly string[]
  /** Pins it to this processor core, counted from 0, if the machine has that core and `taskset`. */
  readonly core?: number
}

/** Starts a program in a separate process, so that its processor time and memory are separate. */
export async function startHelper({
  program,
  args,
  nodeOptions = [],
  core,
}: HelperOptions): Promise<Helper> {
  const child = fork(new URL(program, import.meta.url), args, { execArgv: [...nodeOptions] })
  if (core !== undefined && child.pid !== undefined) pin(child.pid, core)
  const ended = Promise.withResolvers<void>()
  child.once('exit', () => ended.resolve())

  function answer(): Promise<Figures> {
    const { promise, resolve, reject } = Promise.withResolvers<Figures>()
    const fail = (): void => reject(new Error(`${program} ended before it answered`))
    child.once('exit', fail)
    child.once('message', (message) => {
      child.off('exit', fail)
      if (isFigures(message)) resolve(message)
      else reject(new Error(`${program} answered with something that is not figures`))
    })
    return promise
  }

  const ready = await answer()
  return {
    ready,
    ask: (question) => {
      const answered = answer()
      child.send(question)
      return answered
    },
    stop: () => {
      // A helper exits when its channel to us closes, so helpers also end if this process crashes.
      if (child.connected) child.disconnect()
      return ended.promise
    },
  }
}

/**
 * Pins all threads of a process to one processor core. Otherwise a server's other threads use the
 * other cores.
 */
function pin(pid: number, core: number): void {
  if (core < availableParallelism())
    spawnSync('taskset', ['--all-tasks', '--cpu-list', '--pid', String(core), String(pid)])
}

/** Returns a figure. Throws if it is missing. */
export function figure(figures: Figures, name: string): number {
  const value = figures[name]
  if (value === undefined) throw new Error(`the figure ${name} is missing`)
  return value
}

function isFigures(message: unknown): message is Figures {
  return (
    typeof message === 'object' &&
    message !== null &&
    Object.values(message).every((value) => typeof value === 'number')
  )
}

/**
 * Runs in the helper: reports that it is ready, then answers questions until the channel closes.
 */
export function answerQuestions(
  ready: Figures,
  answer: (question: unknown) => Promise<Figures>,
): void {
  process.on('disconnect', () => process.exit(0))
  process.on('message', (question) => {
    answer(question).then(
      (figures) => process.send?.(figures),
      (error: unknown) => {
        process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`)
        process.exit(1)
      },
    )
  })
  process.send?.(ready)
}

/** Returns the processor time of this process so far, in milliseconds. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}
