import { spawnSync } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { declaredSettings } from '../../deploy/cli/settings.ts'
import { type AlertRule, readAlerts } from '../support/deployment/prometheus.ts'

const root = join(import.meta.dirname, '../..')
const read = (file: string): Promise<string> => readFile(join(root, file), 'utf8')

const rules = await readAlerts()
/** Prometheus of Debian, with promtool beside it. */
const prometheus = process.env['TEST_PROMETHEUS'] ?? ''

function promtool(...args: readonly string[]): string {
  const { stdout, stderr } = spawnSync(join(dirname(prometheus), 'promtool'), args, {
    cwd: root,
    encoding: 'utf8',
  })
  return stdout + stderr
}

describe('prometheus.yml', () => {
  it('scrapes the default admin ports as job tollgate, and loads the alerts', async () => {
    const text = await read('deploy/prometheus.yml')
    const defaults = new Map(declaredSettings().map(({ name, fallback }) => [name, fallback]))
    const target = (name: string): string => `127.0.0.1:${defaults.get(name)}`
    expect(defaults.get('ADMIN_PORT')).toBe(defaults.get('CORE_ADMIN_PORT'))
    expect(parse(text)).toEqual({
      global: { scrape_interval: '15s' },
      rule_files: ['alerts.yml'],
      scrape_configs: [
        { job_name: 'tollgate', static_configs: [{ targets: [target('ADMIN_PORT')] }] },
      ],
    })
    const apart = ['GATEWAY_ADMIN_PORT', 'SIDECAR_ADMIN_PORT', 'COLLECTOR_ADMIN_PORT'].map(target)
    expect(text).toContain(`# - targets: [${apart.map((name) => `'${name}'`).join(', ')}]`)
  })
})

describe('the alert rules', () => {
  it('have a unique name, a severity, texts and the address of their section', () => {
    expect(rules.length).toBeGreaterThanOrEqual(40)
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length)
    for (const { alert, labels, annotations } of rules) {
      expect(labels).toEqual({ severity: expect.stringMatching(/^(page|warning)$/) })
      expect(annotations).toEqual({
        summary: expect.stringMatching(/^[A-Z].*[^.]$/),
        description: expect.stringMatching(/^[A-Z{].*\.$/),
        runbook_url: `{{ or $externalLabels.docs "docs" }}/alerts.md#${alert.toLowerCase()}`,
      })
    }
  })

  it('are all explained in docs/alerts.md, with their severity', async () => {
    const sections = (await read('docs/alerts.md')).matchAll(/^## (\w+)\n\n\*\*(\w+)\.\*\* /gm)
    const explained = [...sections].map(
      ([, name, severity]) => `${name} ${severity?.toLowerCase()}`,
    )
    const defined = rules.map(({ alert, labels }) => `${alert} ${labels.severity}`)
    expect(explained.toSorted()).toEqual(defined.toSorted())
  })

  it('are in the table of severities, pages first', async () => {
    const rows = (await read('docs/alerts.md')).match(/^\| \[Tollgate.*$/gm)
    const row = ({ alert, labels, annotations }: AlertRule): string =>
      `| [${alert}](#${alert.toLowerCase()}) | ${labels.severity} | ${annotations.summary} |`
    const of = (severity: string) => rules.filter(({ labels }) => labels.severity === severity)
    expect(rows).toEqual([...of('page'), ...of('warning')].map(row))
  })
})

describe.skipIf(prometheus === '')('promtool', () => {
  it('accepts the rules and the configuration', () => {
    expect(promtool('check', 'rules', 'deploy/alerts.yml')).toContain(
      `SUCCESS: ${rules.length} rules found`,
    )
    expect(promtool('check', 'config', 'deploy/prometheus.yml')).not.toContain('FAILED')
  })

  it('fires each tested rule for the fault, and none for a healthy service', () => {
    expect(promtool('test', 'rules', 'test/deploy/alerts.promtool.yml')).toMatch(/SUCCESS\n*$/)
  })
})
