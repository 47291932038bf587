import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { keepLog, secretSettings } from './secrecy.ts'

export interface ProcessSpec {
  readonly name: 'core' | 'gateway' | 'sidecar' | 'collector'
  /** Its environment, in addition to `bareEnv`. */
  readonly env: Readonly<Record<string, string>>
  /**
   * A command, with arguments, that runs the process. It must replace itself with the process
   * (exec).
   */
  readonly wrap?: readonly string[]
}

export interface RunningProcess {
  /** Sends SIGKILL and returns after the process has exited. */
  kill(): Promise<void>
  /** Starts it again; returns when it is up. */
  start(): Promise<void>
  /** SIGSTOP: pauses the process, with its connections open, until `thaw`. */
  freeze(): void
  thaw(): void
  /** Process id while it runs. */
  pid(): number
  /** How often it was killed. */
  crashes(): number
  /** Sends SIGTERM: the process drains and exits. */
  stop(): Promise<void>
  /** Lines that it logged as errors. */
  readonly errors: readonly string[]
}

/**
 * Returns the environment variables that every process of a test inherits: the program path and the
 * compile cache.
 */
export const bareEnv = (): Record<string, string | undefined> => ({
  PATH: process.env['PATH'],
  NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
})

// The collector runs through its command, which sets its memory.
const programs = {
  core: ['core/main.ts'],
  gateway: ['gateway/main.ts'],
  sidecar: ['sidecar/main.ts'],
  collector: ['deploy/tollgate.mjs', 'collector'],
}
const root = join(import.meta.dirname, '..', '..')
const startMs = 60_000
const stopMs = 10_000
const linesMax = 40
const children = new Set<ChildProcess>()
process.once('exit', () => children.forEach((child) => child.kill('SIGKILL')))

/** Runs one process of the service, as an operator would. */
export async function runProcess({ name, env, wrap = [] }: ProcessSpec): Promise<RunningProcess> {
  let child: ChildProcess | null = null
  let lines: string[] = []
  let crashes = 0
  const errors: string[] = []

  secretSettings(env)

  function note(line: string): boolean {
    keepLog(line)
    lines = [...lines.slice(1 - linesMax), line]
    if (/^\{"level":[56]0/.test(line) && errors.length < linesMax) errors.push(line)
    return line.includes(`"msg":"${name} is up"`)
  }

  async function start(): Promise<void> {
    const [command = '', ...args] = [...wrap, process.execPath, ...programs[name]]
    const started = spawn(command, args, {
      cwd: root,
      env: { ...bareEnv(), ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    child = started
    children.add(started)
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const fail = (why: string): void => reject(new Error(`${name} ${why}:\n${lines.join('\n')}`))
    const timer = setTimeout(fail, startMs, 'is not up in time')
    createInterface(started.stdout).on('line', (line) => {
      if (note(line)) resolve()
    })
    createInterface(started.stderr).on('line', note)
    started
      .once('error', (error) => fail(error.message))
      .once('exit', (code) => {
        children.delete(started)
        fail(`ended with ${code} before it was up`)
      })
    await promise.finally(() => clearTimeout(timer))
  }

  /**
   * Starts it again like a supervisor: repeats failed starts, because parts that it needs may be
   * down.
   */
  async function restart(): Promise<void> {
    for (const until = Date.now() + startMs; ; await sleep(500)) {
      const failure = await start().then(
        () => null,
        (error: unknown) => error,
      )
      if (failure === null) return
      if (Date.now() > until || child?.exitCode === null) throw failure
    }
  }

  async function end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill(signal)
    const timer = setTimeout((late: ChildProcess) => late.kill('SIGKILL'), stopMs, child)
    await gone
    clearTimeout(timer)
  }

  async function kill(): Promise<void> {
    crashes += 1
    await end('SIGKILL')
  }

  await start()
  return {
    start: restart,
    kill,
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
    pid: () => child?.pid ?? 0,
    stop: () => end('SIGTERM'),
    crashes: () => crashes,
    errors,
  }
}

/** Returns distinct ports that are free now. */
export async function freePorts(count: number): Promise<number[]> {
  const probes = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'))
  const ports = await Promise.all(
    probes.map(async (probe) => {
      await once(probe, 'listening')
      const address = probe.address()
      return typeof address === 'object' && address ? address.port : 0
    }),
  )
  await Promise.all(probes.map((probe) => once(probe.close(), 'close')))
  return ports
}
