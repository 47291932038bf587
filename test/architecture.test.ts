import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type Source, readSources, root } from './support/source.ts'
import { forbiddenName } from './support/words.ts'

/** Holds the plan of the house: what docs/architecture.md says of folders, imports, tables and names. */
const sources = readSources('core', 'gateway', 'sidecar', 'deploy', 'proto')
const byPath = new Map(sources.map((source) => [source.path, source]))

/** A domain may take types from those before it; values arrive through its factory. */
const domains = [
  'metering',
  'plans',
  'identity',
  'allowances',
  'keys',
  'tokens',
  'billing',
  'usage',
  'books',
  'signer',
]
const generatedSets = ['proto/gen/ts-proto', 'proto/gen/es']

const under =
  (...folders: readonly string[]) =>
  (path: string): boolean =>
    folders.some((folder) => path === folder || path.startsWith(`${folder}/`))
const domainOf = (path: string): string | undefined =>
  domains.find((name) => under(`core/${name}`)(path))

type Allowed = (source: Source, target: string, typeOnly: boolean) => boolean

/** Every import of the files in `from` that is not allowed, as text. */
const offences = (from: (path: string) => boolean, allowed: Allowed): string[] =>
  sources
    .filter(({ path }) => from(path))
    .flatMap((source) =>
      source.imports
        .filter(({ target, typeOnly }) => !allowed(source, target, typeOnly))
        .map(({ target, line }) => `${source.path}:${line} -> ${target}`),
    )

const where = (test: (source: Source) => boolean): string[] =>
  sources.filter(test).map(({ path }) => path)

describe('imports', () => {
  it('are read at all', () => {
    expect(sources.length).toBeGreaterThan(200)
    expect(sources.flatMap(({ imports }) => imports).length).toBeGreaterThan(1_000)
  })

  it('of the gateway and the sidecar stay with proto, core/lib and their own files', () => {
    const own = (folder: string): string[] =>
      offences(
        under(folder),
        ({ path }, target) =>
          under('proto', 'core/lib', folder)(target) ||
          // The gateway runs the sidecar's webhook inside itself.
          (path === 'gateway/main.ts' && under('sidecar')(target)),
      )
    expect([...own('gateway'), ...own('sidecar')]).toEqual([])
  })

  it('of core/lib reach nothing of the project but the error table', () => {
    const allowed: Allowed = (_, target) =>
      under('core/lib')(target) || target === 'proto/errors.ts'
    expect(offences(under('core/lib'), allowed)).toEqual([])
  })

  it('of core/rpc and core/platform reach no domain', () => {
    const allowed: Allowed = (_, target) => domainOf(target) === undefined
    expect(offences(under('core/rpc', 'core/platform'), allowed)).toEqual([])
  })

  it('of proto reach nothing outside it', () => {
    expect(offences(under('proto'), (_, target) => under('proto')(target))).toEqual([])
  })

  it('of core never reach the processes around it', () => {
    const allowed: Allowed = (_, target) => !under('gateway', 'sidecar', 'deploy', 'test')(target)
    expect(offences(under('core'), allowed)).toEqual([])
  })

  it('never mix the two sets of generated code in one file', () => {
    const both = where(({ imports }) =>
      generatedSets.every((set) => imports.some(({ target }) => under(set)(target))),
    )
    expect(both).toEqual([])
  })

  it('between domains are types alone, of domains that come before', () => {
    const isDomain = (path: string): boolean => domainOf(path) !== undefined
    const allowed: Allowed = ({ path }, target, typeOnly) => {
      const [from, to] = [domainOf(path), domainOf(target)]
      if (from === undefined || to === undefined || from === to) return true
      return typeOnly && domains.indexOf(to) < domains.indexOf(from)
    }
    expect(offences(isDomain, allowed)).toEqual([])
  })

  it('of a store come from its own domain alone', () => {
    const allowed: Allowed = ({ path }, target) =>
      !/(^|[/-])store\.ts$/.test(target) || domainOf(path) === domainOf(target)
    expect(offences(under('core'), allowed)).toEqual([])
  })

  it('form no cycle, types included', () => {
    expect(cycles()).toEqual([])
  })
})

/** Tarjan's strongly connected components of more than one file. */
function cycles(): string[] {
  const index = new Map<string, number>()
  const low = new Map<string, number>()
  const stack: string[] = []
  const result: string[] = []
  const lower = (path: string, value: number): void => {
    low.set(path, Math.min(low.get(path) ?? value, value))
  }
  const visit = (path: string): void => {
    index.set(path, index.size)
    lower(path, index.size - 1)
    stack.push(path)
    for (const { target } of byPath.get(path)?.imports ?? []) {
      if (!byPath.has(target)) continue
      if (!index.has(target)) {
        visit(target)
        lower(path, low.get(target) ?? 0)
      } else if (stack.includes(target)) lower(path, index.get(target) ?? 0)
    }
    if (low.get(path) !== index.get(path)) return
    const component = stack.splice(stack.indexOf(path))
    if (component.length > 1) result.push(component.toSorted().join(' '))
  }
  for (const path of byPath.keys()) if (!index.has(path)) visit(path)
  return result
}

describe('files', () => {
  it('read the environment only in entry points and the command line', () => {
    const entries = /(^|\/)main\.ts$|^core\/lib\/process\.ts$|^deploy\//
    expect(where(({ path, text }) => text.includes('process.env') && !entries.test(path))).toEqual(
      [],
    )
  })

  it('have no default export', () => {
    expect(where(({ text }) => /^export default /m.test(text))).toEqual([])
  })

  it('stand twenty in a folder at most', () => {
    const folders = Map.groupBy(sources, ({ path }) => dirname(path))
    const full = [...folders].filter(([, files]) => files.length > 20)
    expect(full.map(([folder, files]) => `${folder}: ${files.length}`)).toEqual([])
  })

  it('let core be a list of modules', () => {
    expect(byPath.get('core/app.ts')?.text.trimEnd().split('\n').length).toBeLessThan(100)
    const modules = readdirSync(join(root, 'core'))
      .filter((name) => domains.includes(name))
      .filter((name) => !existsSync(join(root, 'core', name, 'module.ts')))
    expect(modules).toEqual([])
  })
})

describe('functions', () => {
  it('have forty lines of their own at most', () => {
    const long = sources.flatMap(({ path, functions }) =>
      functions
        .filter(({ lines }) => lines > 40)
        .map(({ name, line, lines }) => `${path}:${line} ${name}: ${lines}`),
    )
    expect(long).toEqual([])
  })
})

describe('tables', () => {
  const folder = join(root, 'core/db/migrations')
  const tables = readdirSync(folder)
    .flatMap((file) => [
      ...readFileSync(join(folder, file), 'utf8').matchAll(
        /create table (?:if not exists )?(\w+)/g,
      ),
    ])
    .map(([, name = '']) => name)
  const written = new RegExp(
    String.raw`(?:insert into|update|delete from|truncate|copyRows\(\s*\w+,\s*['${'`'}])\s*(${tables.join('|')})(?:_\$\{|\b)`,
    'g',
  )

  it('are written by one store each', () => {
    const writers = new Map<string, Set<string>>()
    for (const { path, text } of sources.filter((source) => under('core')(source.path))) {
      for (const [, table = ''] of withoutComments(text).matchAll(written))
        writers.set(table, (writers.get(table) ?? new Set()).add(path))
    }
    expect(writers.size).toBeGreaterThan(30)
    const shared = [...writers].filter(([, paths]) => paths.size > 1)
    expect(shared.map(([table, paths]) => `${table}: ${[...paths].join(', ')}`)).toEqual([])
  })

  it('are read and written only in stores, the library, and the few that own a table of no domain', () => {
    const owners =
      /(^|[/-])(store|sql|migrate|audit|clients|idempotency|module|platform)\.ts$|^core\/db\//
    const offenders = where(
      ({ path, text }) => /\bsql`|\b(db|pool|client)\.query\(/.test(text) && !owners.test(path),
    )
    expect(offenders).toEqual([])
  })
})

const withoutComments = (text: string): string =>
  text.replaceAll(/\/\*[\s\S]*?\*\//g, '').replaceAll(/^\s*\/\/.*$/gm, '')

describe('names', () => {
  it('are the field’s words', () => {
    const offenders = sources.flatMap(({ path, names }) => [
      ...names
        .filter(({ name }) => forbiddenName(name))
        .map(({ name, line }) => `${path}:${line} ${name}`),
      ...(forbiddenName(basename(path, '.ts')) ? [path] : []),
    ])
    expect(offenders).toEqual([])
  })

  it('of metrics are Prometheus’s, with our prefix', () => {
    const metric = /new (Counter|Gauge|Histogram|Summary)(?:<[^>]*>)?\(\{\s*name: [`'"](\w+)/g
    const metrics = sources.flatMap(({ text }) =>
      [...text.matchAll(metric)].map(([, kind = '', name = '']) => ({ kind, name })),
    )
    expect(metrics.length).toBeGreaterThan(20)
    const bad = metrics.filter(
      ({ kind, name }) =>
        !name.startsWith('tollgate_') ||
        (kind === 'Counter') !== name.endsWith('_total') ||
        (kind === 'Histogram' && !name.endsWith('_duration_seconds')),
    )
    expect(bad).toEqual([])
  })
})

describe('comments', () => {
  const cited = (pattern: RegExp): { at: string; citation: string; comment: string }[] =>
    sources.flatMap(({ path, comments }) =>
      comments.flatMap(({ text, line }) =>
        [...text.matchAll(pattern)].map(([, citation = '']) => ({
          at: `${path}:${line} ${citation}`,
          citation,
          comment: text,
        })),
      ),
    )

  it('cite decisions that have a page', () => {
    const page = (number: string): string =>
      join(root, `docs/decisions/${number.padStart(2, '0')}.md`)
    const decisions = cited(/\bdecisions? (\d+)\b/gi)
    expect(decisions.length).toBeGreaterThan(10)
    expect(
      decisions.filter(({ citation }) => !existsSync(page(citation))).map(({ at }) => at),
    ).toEqual([])
  })

  it('cite documents that are in the repository', () => {
    const documents = cited(/((?:[\w-]+\/)*[\w-]+\.md)\b/g)
    expect(
      documents.filter(({ citation }) => !existsSync(join(root, citation))).map(({ at }) => at),
    ).toEqual([])
  })

  it('cite sections of a standard or a document that they name', () => {
    const sections = cited(/(\bsections? \d[\d.]*)/gi)
    const named = /\bRFC \d+|\bOpenID|\bRP-Initiated Logout|\bISO|\bNIST|\bFIPS|\.md\b/
    expect(sections.filter(({ comment }) => !named.test(comment)).map(({ at }) => at)).toEqual([])
  })
})
