import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { declaredSettings } from '../../deploy/cli/settings.ts'
import { type TestService, startTestService } from '../support/service.ts'

const root = join(import.meta.dirname, '../..')
const read = (file: string): Promise<string> => readFile(join(root, file), 'utf8')

interface Rule {
  readonly alert: string
  expr: string
  for: string | null
  readonly labels: Map<string, string>
  readonly annotations: Map<string, string>
}

// The subset of YAML that the file uses; anything else fails. Values with special characters are in
// single quotes.
const quoted = String.raw`'((?:[^'\n])+)'`
const lines = {
  alert: /^ {6}- alert: ([A-Za-z][A-Za-z0-9]*)$/,
  expr: new RegExp(`^ {8}expr: ${quoted}$`),
  for: /^ {8}for: ((?:\d+[smhdwy])+)$/,
  section: /^ {8}(labels|annotations):$/,
  label: /^ {10}([a-z_]+): ([a-z]+)$/,
  annotation: new RegExp(`^ {10}([a-z_]+): ${quoted}$`),
}

/**
 * Returns the kind of the line and its values; the kind is undefined if the line matches no
 * pattern.
 */
function readLine(line: string): [kind: string | undefined, first: string, second: string] {
  const matches = Object.entries(lines).map(
    ([kind, pattern]) => [kind, pattern.exec(line)] as const,
  )
  const [kind, match] = matches.find(([, match]) => match) ?? []
  const [, first = '', second = ''] = match ?? []
  return [kind, first, second]
}

function parseRules(text: string): Rule[] {
  const rules: Rule[] = []
  let section = ''
  const [groups, name, opening, ...rest] = text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
  expect([groups, name, opening]).toEqual(['groups:', '  - name: tollgate', '    rules:'])
  for (const line of rest) {
    const [kind, first, second] = readLine(line)
    const rule = rules.at(-1)
    if (kind === 'alert')
      rules.push({ alert: first, expr: '', for: null, labels: new Map(), annotations: new Map() })
    else if (!rule || kind === undefined) throw new Error(`not understood: ${line}`)
    else if (kind === 'section') section = first
    else if (kind === 'expr') rule.expr = first
    else if (kind === 'for') rule.for = first
    else if ((kind === 'label') !== (section === 'labels'))
      throw new Error(`in the wrong place: ${line}`)
    else (kind === 'label' ? rule.labels : rule.annotations).set(first, second)
  }
  return rules
}

const words = new Set(['max', 'sum', 'increase', 'unless'])
/**
 * Names of series in an expression: words outside of braces, brackets and strings, except operators
 * and functions.
 */
const seriesIn = (expr: string): string[] =>
  [...expr.replace(/\{[^}]*\}|\[[^\]]*\]|"[^"]*"/g, ' ').matchAll(/[a-zA-Z_:][a-zA-Z0-9_:]*/g)]
    .map(([word]) => word)
    .filter((word) => !words.has(word))

/** Whether every bracket is closed by its counterpart. */
function isBalanced(expr: string): boolean {
  const open: string[] = []
  const pairs: Readonly<Record<string, string>> = { ')': '(', ']': '[', '}': '{' }
  for (const sign of expr.replace(/"[^"]*"/g, '')) {
    if ('([{'.includes(sign)) open.push(sign)
    else if (pairs[sign] !== undefined && open.pop() !== pairs[sign]) return false
  }
  return open.length === 0
}

let service: TestService
let rules: readonly Rule[]
beforeAll(async () => {
  service = await startTestService()
  rules = parseRules(await read('deploy/alerts.yml'))
})
afterAll(() => service.stop())

describe('prometheus.yml', () => {
  it('scrapes the default admin ports as job tollgate, and loads the alerts', async () => {
    const text = await read('deploy/prometheus.yml')
    const defaults = new Map(declaredSettings().map(({ name, fallback }) => [name, fallback]))
    const target = (name: string): string => `127.0.0.1:${defaults.get(name)}`
    expect(defaults.get('ADMIN_PORT')).toBe(defaults.get('CORE_ADMIN_PORT'))
    // The subset of YAML that the file uses: two spaces per level, no multi-line values.
    const entries = text
      .split('\n')
      .filter((line) => line !== '' && !/^ *#/.test(line))
      .map((line) => {
        expect(line).toMatch(/^(?: {2})*(?:- )?(?:[a-z_]+:(?: [^:]+| \['[\d.:]+'\])?|[a-z.]+)$/)
        return line.trim()
      })
    expect(entries).toEqual([
      'global:',
      'scrape_interval: 15s',
      'rule_files:',
      '- alerts.yml',
      'scrape_configs:',
      '- job_name: tollgate',
      'static_configs:',
      `- targets: ['${target('ADMIN_PORT')}']`,
    ])
    const apart = ['GATEWAY_ADMIN_PORT', 'SIDECAR_ADMIN_PORT', 'COLLECTOR_ADMIN_PORT'].map(target)
    expect(text).toContain(`# - targets: [${apart.map((name) => `'${name}'`).join(', ')}]`)
  })
})

describe('the alert rules', () => {
  it('have a unique name, an expression, a severity and a text', () => {
    expect(rules.length).toBeGreaterThanOrEqual(10)
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length)
    for (const rule of rules) {
      expect([
        rule.alert,
        isBalanced(rule.expr),
        [...rule.labels.keys()],
        ['page', 'warning'].includes(rule.labels.get('severity') ?? ''),
      ]).toEqual([rule.alert, true, ['severity'], true])
      expect([rule.alert, ...rule.annotations.keys()]).toEqual([
        rule.alert,
        'summary',
        'description',
      ])
    }
  })

  it('use only existing metrics', async () => {
    // Metrics of Prometheus itself and of the machine's node exporter.
    const others = new Set(['up', 'node_filesystem_avail_bytes', 'node_filesystem_size_bytes'])
    const page = await (await fetch(`${service.service.quickstart.adminUrl}/metrics`)).text()
    const exposed = new Set([...page.matchAll(/^# TYPE (\S+) /gm)].map(([, name = '']) => name))
    const named = [...new Set(rules.flatMap(({ expr }) => seriesIn(expr)))]
    expect(named.length).toBeGreaterThan(8)
    expect(named.filter((name) => !exposed.has(name) && !others.has(name))).toEqual([])
  })

  it('are all explained in docs/alerts.md, with their severity', async () => {
    const sections = (await read('docs/alerts.md')).matchAll(/^## (\w+)\n\n\*\*(\w+)\.\*\* /gm)
    const explained = [...sections].map(
      ([, name, severity]) => `${name} ${severity?.toLowerCase()}`,
    )
    const defined = rules.map(({ alert, labels }) => `${alert} ${labels.get('severity')}`)
    expect(explained.toSorted()).toEqual(defined.toSorted())
  })
})
