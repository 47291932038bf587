import { fork, spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'

/** What a helper answers: figures by name. */
export type Figures = Readonly<Record<string, number>>

export interface Helper {
  /** Its first line, which it printed when it was ready. */
  readonly ready: Figures
  /** One question at a time. Rejects when the helper has ended. */
  ask(question: object): Promise<Figures>
  stop(): Promise<void>
}

export interface HelperOptions {
  /** The program, beside this file. */
  readonly program: string
  readonly args: readonly string[]
  readonly nodeOptions?: readonly string[]
  /** Keeps it on this core, counted from 0, where the machine has it and `taskset`. */
  readonly core?: number
}

/** Starts a program of its own process, so that its processor time and memory are its own. */
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
      // A helper ends when its line to us does, so one that we leave behind by a crash ends as
      // well.
      if (child.connected) child.disconnect()
      return ended.promise
    },
  }
}

/** Keeps all threads of a process on one core. Without it a server's own threads use the others. */
export function pin(pid: number, core: number): void {
  if (core < availableParallelism())
    spawnSync('taskset', ['--all-tasks', '--cpu-list', '--pid', String(core), String(pid)])
}

/** A figure that must be there. */
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

/** The helper's side: says that it is ready, then answers questions until the line is closed. */
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

/** Processor time of this process so far, in milliseconds. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}
