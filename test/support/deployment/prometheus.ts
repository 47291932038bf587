import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parse, stringify } from 'yaml'
import { until } from '../waiting.ts'
import { freePorts } from './processes.ts'

const root = join(import.meta.dirname, '../../..')

export interface AlertRule {
  readonly alert: string
  readonly expr: string
  readonly for?: string
  readonly labels: { readonly severity: string }
  readonly annotations: {
    readonly summary: string
    readonly description: string
    readonly runbook_url: string
  }
}

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly AlertRule[] }[]
}

/** Reads the rules of deploy/alerts.yml. */
export async function readAlerts(): Promise<readonly AlertRule[]> {
  const file: RuleFile = parse(await readFile(join(root, 'deploy/alerts.yml'), 'utf8'))
  return file.groups.flatMap(({ rules }) => rules)
}

/** A running Prometheus that scrapes one target each second as job tollgate. */
export interface Prometheus {
  /** Returns the values of an instant query, as text; NaN is a value. */
  query(expr: string): Promise<string[]>
  stop(): Promise<void>
}

/** Starts the Prometheus at `binary`, with the rules of deploy/alerts.yml. */
export async function startPrometheus(binary: string, target: string): Promise<Prometheus> {
  const directory = await mkdtemp(join(tmpdir(), 'tollgate-prometheus-'))
  const [port = 0] = await freePorts(1)
  const config = {
    global: { scrape_interval: '1s', evaluation_interval: '1s' },
    rule_files: [join(root, 'deploy/alerts.yml')],
    scrape_configs: [{ job_name: 'tollgate', static_configs: [{ targets: [target] }] }],
  }
  await writeFile(join(directory, 'prometheus.yml'), stringify(config))
  const child = spawn(
    binary,
    [
      `--config.file=${join(directory, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(directory, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { stdio: 'ignore' },
  )
  const ended = once(child, 'exit')

  async function query(expr: string): Promise<string[]> {
    const body = new URLSearchParams({ query: expr })
    const response = await fetch(`http://127.0.0.1:${port}/api/v1/query`, { method: 'POST', body })
    const answer: QueryAnswer = JSON.parse(await response.text())
    if (answer.status !== 'success') throw new Error(`${expr}: ${answer.error}`)
    return answer.data.result.map(({ value: [, text] }) => text)
  }

  async function stop(): Promise<void> {
    child.kill('SIGKILL')
    await ended
    await rm(directory, { recursive: true, force: true })
  }

  const isReady = (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${port}/-/ready`).then(
      ({ ok }) => ok,
      () => false,
    )
  await until(isReady)
  return { query, stop }
}

type QueryAnswer =
  | {
      readonly status: 'success'
      readonly data: { readonly result: readonly { readonly value: [number, string] }[] }
    }
  | { readonly status: 'error'; readonly error: string }
