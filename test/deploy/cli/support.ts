import { beforeAll, vi } from 'vitest'
import { main } from '../../../deploy/main.ts'
import { type TestApp, type TestCore, serviceToken, startTestCore } from '../../core/support.ts'

export interface Printed {
  readonly code: number
  readonly text: string
}

/** Runs a command in this process; returns its output and exit code. */
export async function tollgate(...argv: string[]): Promise<Printed> {
  const printed: string[] = []
  const keep = (chunk: unknown) => printed.push(String(chunk)) > 0
  const spies = [process.stdout, process.stderr].map((stream) =>
    vi.spyOn(stream, 'write').mockImplementation(keep),
  )
  try {
    return { code: await main(argv), text: printed.join('') }
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
}

/** Runs a command that may write to the core of `startCli`. */
export const operate = (...argv: string[]): Promise<Printed> =>
  tollgate(...argv, '--target', process.env['CORE_TARGET'] ?? '')

/** Starts a core with an app. The commands of the test file find it by the environment. */
export async function startCli(env: Readonly<Record<string, string>> = {}) {
  const core = await startTestCore(env)
  vi.stubEnv('CORE_TARGET', core.core.target)
  vi.stubEnv('CORE_TOKEN', serviceToken)
  async function stop(): Promise<void> {
    vi.unstubAllEnvs()
    await core.stop()
  }
  return { core, app: await core.newApp(), stop }
}

export let core: TestCore
export let app: TestApp

/** Registers the hooks of a test file: a core with an app, which its commands find. */
export function setUpCli(env?: Readonly<Record<string, string>>): void {
  beforeAll(async () => {
    const cli = await startCli(env)
    ;({ core, app } = cli)
    return cli.stop
  })
}
