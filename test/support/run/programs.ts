import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { accessSync, constants } from 'node:fs'
import { connect } from 'node:net'
import { delimiter, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin']
const running = new Set<ChildProcess>()
process.once('exit', () => running.forEach((child) => child.kill('SIGKILL')))

/** Returns the path of an installed program; undefined if it is missing. */
export function findProgram(name: string): string | undefined {
  return folders
    .map((folder) => join(folder, name))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK)
        return true
      } catch {
        return false
      }
    })
}

/** The user that runs programs which refuse to run as root; undefined if this is not root. */
export const nobody = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : undefined

export interface Program {
  readonly pid: number
  /** Sends SIGTERM, and SIGKILL after 5 s. Resolves after the exit. */
  stop(signal?: NodeJS.Signals): Promise<void>
}

export interface Place {
  readonly port: number
  readonly cwd: string
  /** Whether it runs as the user of this process; otherwise as `nobody`. Default is false. */
  readonly asSelf?: boolean
}

// Ten seconds, and as long again on a busy machine.
const startTries = 400

/** Starts a program in the foreground. Resolves when it accepts connections on `port`. */
export async function startProgram(
  command: string,
  args: readonly string[],
  { port, cwd, asSelf = false }: Place,
): Promise<Program> {
  const user = asSelf ? undefined : nobody
  const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'], ...user })
  running.add(child)
  const ended = once(child, 'exit').finally(() => running.delete(child))
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output = (output + chunk.toString()).slice(-4_000)
    })
  for (let attempt = 1; !(await accepts(port)); attempt++) {
    if (attempt > startTries || child.exitCode !== null)
      throw new Error(`${command} did not start:\n${output}`)
    await sleep(50)
  }

  async function stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return
    child.kill(signal)
    const timer = setTimeout(() => child.kill('SIGKILL'), 5_000)
    await ended
    clearTimeout(timer)
  }

  return { pid: child.pid ?? 0, stop }
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  const isOpen = await once(socket, 'connect').then(
    () => true,
    () => false,
  )
  socket.destroy()
  return isOpen
}
