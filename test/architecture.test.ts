import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type Source, readSources, root } from './support/source.ts'
import { forbiddenName } from './support/words.ts'

/** Checks the rules in docs/architecture.md for folders, imports, tables and names. */
const sources = readSources('core', 'gateway', 'sidecar', 'deploy', 'proto')
const byPath = new Map(sources.map((source) => [source.path, source]))

/** A domain may import types from earlier domains; values arrive through its factory. */
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

/** Returns every import in the files of `from` that is not allowed, as text. */
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
  it('are parsed', () => {
    expect(sources.length).toBeGreaterThan(200)
    expect(sources.flatMap(({ imports }) => imports).length).toBeGreaterThan(1_000)
  })

  it('keeps gateway and sidecar to proto, core/lib and their own files', () => {
    const own = (folder: string): string[] =>
      offences(
        under(folder),
        ({ path }, target) =>
          under('proto', 'core/lib', folder)(target) ||
          // The gateway runs the sidecar's webhook in its process.
          (path === 'gateway/main.ts' && under('sidecar')(target)),
      )
    expect([...own('gateway'), ...own('sidecar')]).toEqual([])
  })

  it('keeps core/lib to itself and the error table', () => {
    const allowed: Allowed = (_, target) =>
      under('core/lib')(target) || target === 'proto/errors.ts'
    expect(offences(under('core/lib'), allowed)).toEqual([])
  })

  it('keeps core/rpc and core/platform free of domains', () => {
    const allowed: Allowed = (_, target) => domainOf(target) === undefined
    expect(offences(under('core/rpc', 'core/platform'), allowed)).toEqual([])
  })

  it('keeps proto to itself', () => {
    expect(offences(under('proto'), (_, target) => under('proto')(target))).toEqual([])
  })

  it('keeps core free of the processes around it', () => {
    const allowed: Allowed = (_, target) => !under('gateway', 'sidecar', 'deploy', 'test')(target)
    expect(offences(under('core'), allowed)).toEqual([])
  })

  it('keeps the two sets of generated code apart in each file', () => {
    const both = where(({ imports }) =>
      generatedSets.every((set) => imports.some(({ target }) => under(set)(target))),
    )
    expect(both).toEqual([])
  })

  it('allows only types of earlier domains between domains', () => {
    const isDomain = (path: string): boolean => domainOf(path) !== undefined
    const allowed: Allowed = ({ path }, target, typeOnly) => {
      const [from, to] = [domainOf(path), domainOf(target)]
      if (from === undefined || to === undefined || from === to) return true
      return typeOnly && domains.indexOf(to) < domains.indexOf(from)
    }
    expect(offences(isDomain, allowed)).toEqual([])
  })

  it('keeps each store to its own domain', () => {
    const allowed: Allowed = ({ path }, target) =>
      !/(^|[/-])store\.ts$/.test(target) || domainOf(path) === domainOf(target)
    expect(offences(under('core'), allowed)).toEqual([])
  })

  it('has no cycles, types included', () => {
    expect(cycles()).toEqual([])
  })
})

/** Returns Tarjan's strongly connected components with more than one file. */
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

  it('number at most twenty per folder', () => {
    const folders = Map.groupBy(sources, ({ path }) => dirname(path))
    const full = [...folders].filter(([, files]) => files.length > 20)
    expect(full.map(([folder, files]) => `${folder}: ${files.length}`)).toEqual([])
  })

  it('keep core a list of modules', () => {
    expect(byPath.get('core/app.ts')?.text.trimEnd().split('\n').length).toBeLessThan(100)
    const modules = readdirSync(join(root, 'core'))
      .filter((name) => domains.includes(name))
      .filter((name) => !existsSync(join(root, 'core', name, 'module.ts')))
    expect(modules).toEqual([])
  })
})

describe('functions', () => {
  it('have at most forty own lines', () => {
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

  it('are read and written only in stores, the library, and files that own a table outside the domains', () => {
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
  it('avoid the forbidden words', () => {
    const offenders = sources.flatMap(({ path, names }) => [
      ...names
        .filter(({ name }) => forbiddenName(name))
        .map(({ name, line }) => `${path}:${line} ${name}`),
      ...(forbiddenName(basename(path, '.ts')) ? [path] : []),
    ])
    expect(offenders).toEqual([])
  })

  it('follow Prometheus rules for metrics, with our prefix', () => {
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

  it('cite decisions that exist', () => {
    const page = (number: string): string =>
      join(root, `docs/decisions/${number.padStart(2, '0')}.md`)
    const decisions = cited(/\bdecisions? (\d+)\b/gi)
    expect(decisions.length).toBeGreaterThan(10)
    expect(
      decisions.filter(({ citation }) => !existsSync(page(citation))).map(({ at }) => at),
    ).toEqual([])
  })

  it('cite documents that exist', () => {
    const documents = cited(/((?:[\w-]+\/)*[\w-]+\.md)\b/g)
    expect(
      documents.filter(({ citation }) => !existsSync(join(root, citation))).map(({ at }) => at),
    ).toEqual([])
  })

  it('cite sections only with the name of their standard or document', () => {
    const sections = cited(/(\bsections? \d[\d.]*)/gi)
    const named = /\bRFC \d+|\bOpenID|\bRP-Initiated Logout|\bISO|\bNIST|\bFIPS|\.md\b/
    expect(sections.filter(({ comment }) => !named.test(comment)).map(({ at }) => at)).toEqual([])
  })
})
