import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type Source, listFiles, readSources, readViews, root } from './support/source/source.ts'
import { forbiddenName } from './support/source/words.ts'

/** Checks the rules in docs/architecture.md for folders, imports, tables and names. */
const sources = readSources('core', 'gateway', 'sidecar', 'deploy', 'proto')
const byPath = new Map(sources.map((source) => [source.path, source]))
/** The dashboard's components. */
const components = readViews()

/** A domain may import types from earlier domains; values arrive through its factory. */
const domains = [
  'metering',
  'plans',
  'mail',
  'identity',
  'webhooks',
  'balances',
  'keys',
  'tokens',
  'billing',
  'usage',
  'books',
  'signer',
]
/**
 * Folders of a parent folder, in their order: a folder imports only from folders in later entries.
 * Folders that share an entry do not import each other. Files of the parent itself may import, and
 * be imported by, all of them, unless an entry names them.
 */
const orders: Readonly<Record<string, readonly (readonly string[])[]>> = {
  'core/balances': [['credit'], ['ledger'], ['escrow'], ['limits'], ['exposure'], ['accounts']],
  'core/balances/escrow': [['granting'], ['stores'], ['reports']],
  'core/billing': [
    ['orders'],
    ['collection'],
    ['reconciliation', 'wallet'],
    ['invoices'],
    ['payments'],
    ['owners'],
    ['processor'],
    ['clock', 'summary', 'whatif'],
  ],
  'core/books': [['checks'], ['verify'], ['receipts', 'seal', 'transfer']],
  'core/identity': [
    ['issuers', 'platform-app', 'providers'],
    ['users'],
    ['members', 'registrations', 'tenants'],
    ['apps'],
    ['accounts', 'callers'],
  ],
  'core/metering': [
    ['collector', 'loss', 'redrive'],
    ['ingest'],
    ['backend', 'quarantine', 'rating'],
    ['batch', 'rates'],
    ['events'],
  ],
  'core/lib': [['core-link', 'foreign-tokens', 'names', 'network', 'outbound'], ['text']],
  'core/plans': [['subscriptions'], ['sync'], ['offers'], ['catalog'], ['prices']],
  'core/tokens': [['grants'], ['revocation'], ['login'], ['devices', 'issuer', 'sessions']],
  'core/usage': [['feed', 'history', 'meters', 'tickets']],
  core: [['operations'], ['rpc'], ['shared'], ['db'], ['lib']],
  deploy: [['docs'], ['all-in-one', 'demo'], ['signer-double'], ['cli'], ['local']],
  'gateway/platform-api': [['me'], ['oidc'], ['signer']],
  gateway: [['builder-api'], ['platform-api'], ['pages'], ['limits'], ['auth'], ['http'], ['core']],
  sidecar: [
    ['explain'],
    ['authorize'],
    ['events', 'spool'],
    ['identity'],
    ['wallets'],
    ['decision'],
    ['signer-state'],
    ['callers'],
    ['http'],
    ['cache'],
    ['core'],
    ['metrics.ts'],
  ],
}

const generatedSets = ['proto/gen/ts-proto', 'proto/gen/es']

const under =
  (...folders: readonly string[]) =>
  (path: string): boolean =>
    folders.some((folder) => path === folder || path.startsWith(`${folder}/`))
const domainOf = (path: string): string | undefined =>
  domains.find((name) => under(`core/${name}`)(path))

/** The folder of `parent` in which `path` lies. */
const folderIn = (parent: string, path: string): string | undefined =>
  under(parent)(path) ? path.slice(parent.length + 1).split('/')[0] : undefined

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

  it('keeps core/rpc and core/shared free of domains', () => {
    const allowed: Allowed = (_, target) => domainOf(target) === undefined
    expect(offences(under('core/rpc', 'core/shared'), allowed)).toEqual([])
  })

  it('keeps proto to itself and the reading of JSON', () => {
    const allowed: Allowed = (_, target) => under('proto')(target) || target === 'core/lib/json.ts'
    expect(offences(under('proto'), allowed)).toEqual([])
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

  it.each(Object.entries(orders))('keeps the folders of %s in their order', (parent, order) => {
    const rank = (path: string): number =>
      order.findIndex((names) => under(...names.map((name) => `${parent}/${name}`))(path))
    const allowed: Allowed = ({ path }, target) => {
      const [from, to] = [folderIn(parent, path), folderIn(parent, target)]
      if (from === to || rank(target) === -1 || rank(path) === -1) return true
      return rank(path) < rank(target)
    }
    expect(offences(under(parent), allowed)).toEqual([])
  })

  it('keeps each view of the dashboard to its folder, shared parts, and queries', () => {
    const web = under('gateway/web')
    const allowed = (from: string | undefined, to: string | undefined): boolean =>
      to === from || to === 'api' || (to === 'ui' && from !== 'api')
    const found = [...components, ...sources.filter(({ path }) => web(path))]
      // The entry, the router and the frame import every view.
      .filter(({ path }) => dirname(path) !== 'gateway/web')
      .flatMap(({ path, imports }) =>
        imports
          .filter(({ target }) => web(target))
          .filter(({ target }) => {
            const [from, to] = [folderIn('gateway/web', path), folderIn('gateway/web', target)]
            return !allowed(from, to)
          })
          .map(({ target, line }) => `${path}:${line} -> ${target}`),
      )
    expect(found).toEqual([])
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
    const entries = /(^|\/)main\.ts$|^core\/lib\/process\.ts$|^deploy\/|\.config\.ts$/
    expect(where(({ path, text }) => text.includes('process.env') && !entries.test(path))).toEqual(
      [],
    )
  })

  const isConfig = (path: string): boolean => path.endsWith('.config.ts')

  it('have no default export', () => {
    // Tools want one in their own configuration.
    const exports = where(({ path, text }) => /^export default /m.test(text) && !isConfig(path))
    expect(exports).toEqual([])
  })

  it('number at most twenty per folder', () => {
    const files = listFiles('core', 'gateway', 'sidecar', 'deploy', 'proto', 'test')
    const folders = Map.groupBy(files, (path) => dirname(path))
    // Migrations are never changed, so their number only grows.
    folders.delete('core/db/migrations')
    const full = [...folders].filter(([, paths]) => paths.length > 20)
    expect(full.map(([folder, paths]) => `${folder}: ${paths.length}`)).toEqual([])
  })

  it('have at most 500 lines', () => {
    const long = listFiles('core', 'gateway', 'sidecar', 'deploy', 'proto', 'test')
      .filter((path) => /\.(?:tsx?|css)$/.test(path))
      .map((path) => ({ path, lines: lineCount(readFileSync(join(root, path), 'utf8')) }))
      .filter(({ lines }) => lines > 500)
    expect(long).toEqual([])
  })

  it('register hooks when a test calls them, because test files of a worker share modules', () => {
    const hooked = listFiles('test')
      .filter((path) => path.endsWith('.ts') && !path.endsWith('.test.ts'))
      .filter((path) => path !== 'test/support/run/file-setup.ts')
      .filter((path) => /^(before|after)(All|Each)\(/m.test(readFileSync(join(root, path), 'utf8')))
    expect(hooked).toEqual([])
  })

  it('keep core a list of modules', () => {
    expect(lineCount(byPath.get('core/app.ts')?.text ?? '')).toBeLessThan(100)
    const modules = readdirSync(join(root, 'core'))
      .filter((name) => domains.includes(name))
      .filter((name) => !existsSync(join(root, 'core', name, 'module.ts')))
    expect(modules).toEqual([])
  })
})

const lineCount = (text: string): number => text.trimEnd().split('\n').length

describe('functions', () => {
  it('have at most 150 lines with everything inside', () => {
    const long = sources.flatMap(({ path, functions }) =>
      functions
        .filter(({ span }) => span > 150)
        .map(({ name, line, span }) => `${path}:${line} ${name}: ${span}`),
    )
    expect(long).toEqual([])
  })

  it('have at most eighty own lines in components, because markup needs more', () => {
    const long = components.flatMap(({ path, functions }) =>
      functions
        .filter(({ lines, span }) => lines > 80 || span > 150)
        .map(({ name, line, lines }) => `${path}:${line} ${name}: ${lines}`),
    )
    expect(long).toEqual([])
  })

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
      /(^|[/-])(store|sql|migrate|audit|clients|idempotency|module|shared)\.ts$|^core\/(db|operations\/backup)\//
    const offenders = where(
      ({ path, text }) =>
        /\bsql`|\bprepared\('|\b(db|pool|client)\.query\(/.test(text) && !owners.test(path),
    )
    expect(offenders).toEqual([])
  })
})

describe('migrations', () => {
  it('have unique numbers, so that their order does not depend on their names', () => {
    const files = listFiles('core/db/migrations').map((path) => basename(path))
    const numbers = files.map((file) => /^(\d{4})_[a-z_]+\.sql$/.exec(file)?.[1] ?? file)
    expect(numbers.length).toBeGreaterThan(20)
    expect(numbers.filter((number, i) => numbers.indexOf(number) !== i)).toEqual([])
    expect(numbers.filter((number) => !/^\d{4}$/.test(number))).toEqual([])
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

describe('pages', () => {
  // Figures, and what a reader looks up by name.
  const references = ['alerts', 'chaos-report', 'cli', 'configuration', 'errors', 'rpc-roles']
  const read = (path: string): string => readFileSync(join(root, path), 'utf8')
  const pages = listFiles('docs').filter((path) => path.endsWith('.md'))
  const above = (paths: readonly string[], max: number, count: (text: string) => number) =>
    paths.map((path) => [path, count(read(path))] as const).filter(([, size]) => size > max)
  const countWords = (text: string): number => text.split(/\s+/).filter(Boolean).length
  const countLines = (text: string): number => text.split('\n').length - 1

  it('have at most 1,500 words, if they explain', () => {
    const explaining = pages.filter(
      (path) => dirname(path) === 'docs' && !references.includes(basename(path, '.md')),
    )
    expect(explaining.length).toBeGreaterThan(50)
    expect(above(explaining, 1500, countWords)).toEqual([])
  })

  it('have at most 200 words, if they are decisions', () => {
    const decisions = pages.filter((path) => /^docs\/decisions\/\d/.test(path))
    expect(decisions.length).toBeGreaterThan(60)
    expect(above(decisions, 200, countWords)).toEqual([])
  })

  it('have at most 60 lines, if they are the README of a folder with code', () => {
    const readmes = listFiles('core', 'gateway', 'sidecar').filter((path) =>
      path.endsWith('README.md'),
    )
    expect(readmes.length).toBeGreaterThan(15)
    expect(above(readmes, 60, countLines)).toEqual([])
  })
})
