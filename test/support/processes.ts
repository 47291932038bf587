import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { keepLog, secretSettings } from './secrecy.ts'

export interface ProcessSpec {
  readonly name: 'core' | 'gateway' | 'sidecar' | 'collector'
  /** All of its environment but `bareEnv`. */
  readonly env: Readonly<Record<string, string>>
  /** A command, with its arguments, that runs it; it must become the process itself. */
  readonly wrap?: readonly string[]
}

export interface RunningProcess {
  /** SIGKILL; returns when it is gone. */
  kill(): Promise<void>
  /** Starts it again; returns when it is up. */
  start(): Promise<void>
  /** SIGSTOP: it does nothing, and holds its connections, until `thaw`. */
  freeze(): void
  thaw(): void
  /** Its id while it runs. */
  pid(): number
  /** How often it was killed. */
  crashes(): number
  /** Drains and ends. */
  stop(): Promise<void>
  /** Lines that it logged as errors. */
  readonly errors: readonly string[]
}

/** What each process that a test starts has of the environment: where programs are, and where compiled code is kept. */
export const bareEnv = (): Record<string, string | undefined> => ({
  PATH: process.env['PATH'],
  NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
})

// The collector as its command runs it, with the memory that it has then.
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

/** Runs one of the service's processes by itself, as an operator would. */
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

  /** Starts it again as a supervisor does: the parts that it needs may be away at the same time. */
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

/** Ports that are free now, all different. */
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
