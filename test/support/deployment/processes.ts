import { type ChildProcess, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { keepLog, secretSettings } from '../run/secrecy.ts'

export interface ProcessSpec {
  readonly name: 'core' | 'gateway' | 'sidecar' | 'collector'
  /** The program, with arguments. Default is the one that operators run. */
  readonly program?: readonly string[]
  /** The folder of the code, of this release by default. */
  readonly root?: string
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
  /** Sends SIGHUP; returns the log line that reports the reload. */
  reload(): Promise<string>
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
const projectRoot = join(import.meta.dirname, '../../..')
const startMs = 60_000
const stopMs = 10_000
const linesMax = 40
const children = new Set<ChildProcess>()
process.once('exit', () => children.forEach((child) => child.kill('SIGKILL')))

/** Runs one process of the service, as an operator would. */
export async function runProcess({
  name,
  program = programs[name],
  root = projectRoot,
  env,
  wrap = [],
}: ProcessSpec): Promise<RunningProcess> {
  let child: ChildProcess | null = null
  let lines: string[] = []
  let crashes = 0
  const errors: string[] = []
  let onReload: (line: string) => void = () => {}

  secretSettings(env)

  function note(line: string): boolean {
    keepLog(line)
    lines = [...lines.slice(1 - linesMax), line]
    if (/^\{"level":"(error|fatal)"/.test(line) && errors.length < linesMax) errors.push(line)
    if (/"msg":"(the )?settings /.test(line)) onReload(line)
    return line.includes(`"msg":"${name} is up"`)
  }

  async function start(): Promise<void> {
    const [command = '', ...args] = [...wrap, process.execPath, ...program]
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

  async function reload(): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>()
    onReload = resolve
    const fail = (code: number): void => reject(new Error(`${name} ended with ${code}`))
    child?.once('exit', fail).kill('SIGHUP')
    return promise.finally(() => child?.off('exit', fail))
  }

  async function kill(): Promise<void> {
    crashes += 1
    await end('SIGKILL')
  }

  await start()
  return {
    start: restart,
    reload,
    kill,
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
    pid: () => child?.pid ?? 0,
    stop: () => end('SIGTERM'),
    crashes: () => crashes,
    errors,
  }
}

// Below the ports that systems give to outgoing connections (32768 and up on Linux), which would
// take a port between this choice and its use.
const [portMin, portMax] = [10_000, 32_000]
let lastPort = randomInt(portMin, portMax)

/** Returns distinct ports that are free now. */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = []
  while (ports.length < count) {
    lastPort = lastPort + 1 < portMax ? lastPort + 1 : portMin
    if (await isFree(lastPort)) ports.push(lastPort)
  }
  return ports
}

async function isFree(port: number): Promise<boolean> {
  const probe = createServer().listen(port, '127.0.0.1')
  const isListening = await once(probe, 'listening').then(
    () => true,
    () => false,
  )
  if (isListening) await once(probe.close(), 'close')
  return isListening
}
