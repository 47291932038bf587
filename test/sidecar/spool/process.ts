import { onTestFinished } from 'vitest'
import { type RunningProcess, freePorts, runProcess } from '../../support/deployment/processes.ts'
import { type CoreDouble, startCoreDouble } from '../../fakes/sidecar-core.ts'
import { coreToken, secret } from '../support.ts'

export interface SpoolingSidecar {
  readonly core: CoreDouble
  readonly process: RunningProcess
  readonly url: string
  readonly adminUrl: string
  /** Status and text of the answer; null without one. */
  push(body: string): Promise<{ status: number; text: string; retryAfter: string | null } | null>
}

const answerMs = 5_000

/** Starts a sidecar with a spool in a separate process, connected to a core double in this one. */
export async function startSpoolingSidecar(
  env: Readonly<Record<string, string>>,
  wrap?: readonly string[],
): Promise<SpoolingSidecar> {
  const core = await startCoreDouble()
  onTestFinished(core.stop)
  const [port = 0, adminPort = 0] = await freePorts(2)
  const process = await runProcess({
    name: 'sidecar',
    ...(wrap && { wrap }),
    env: {
      SIDECAR_PORT: String(port),
      SIDECAR_ADMIN_PORT: String(adminPort),
      CORE_TARGET: core.target,
      CORE_TOKEN: coreToken,
      WEBHOOK_SECRET: secret,
      ...env,
    },
  })
  onTestFinished(process.stop)
  const url = `http://127.0.0.1:${port}`

  async function push(body: string) {
    try {
      const response = await fetch(`${url}/events`, {
        method: 'POST',
        body,
        signal: AbortSignal.timeout(answerMs),
        headers: { authorization: `Bearer ${secret}` },
      })
      return {
        status: response.status,
        text: await response.text(),
        retryAfter: response.headers.get('retry-after'),
      }
    } catch {
      return null
    }
  }

  return { core, process, url, adminUrl: `http://127.0.0.1:${adminPort}`, push }
}
