import { readFile } from 'node:fs/promises'
import { glob } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'

const root = join(import.meta.dirname, '..')
const domains = [
  'metering',
  'plans',
  'identity',
  'allowances',
  'keys',
  'tokens',
  'usage',
  'billing',
  'signer',
  'books',
]
const gen = ['proto/gen/ts-proto', 'proto/gen/es']

interface Source {
  readonly path: string
  readonly text: string
  readonly imports: readonly { target: string; typeOnly: boolean }[]
}
const sources: Source[] = []

beforeAll(async () => {
  const pattern = '{core,gateway,sidecar,proto,deploy}/**/*.ts'
  for await (const file of glob(pattern, { cwd: root, exclude: (name) => name === 'gen' })) {
    const text = await readFile(join(root, file), 'utf8')
    const found = text.matchAll(/^(import|export)( type)?[^'"]*?from '(\.[^']+)'/gms)
    const imports = [...found].map(([, , type, target = '']) => ({
      target: relative(root, join(root, dirname(file), target))
        .split(sep)
        .join('/'),
      typeOnly: type !== undefined,
    }))
    sources.push({ path: file.split(sep).join('/'), text, imports })
  }
})

const under =
  (...folders: string[]) =>
  (path: string) =>
    folders.some((folder) => path === folder || path.startsWith(`${folder}/`))
const domainOf = (path: string) => domains.find((domain) => path.startsWith(`core/${domain}/`))

/** Every import of `from` whose target is not allowed, as text. */
function offences(
  from: (path: string) => boolean,
  allowed: (source: Source, target: string, typeOnly: boolean) => boolean,
): string[] {
  return sources
    .filter(({ path }) => from(path))
    .flatMap((source) =>
      source.imports
        .filter(({ target, typeOnly }) => !allowed(source, target, typeOnly))
        .map(({ target }) => `${source.path} -> ${target}`),
    )
}

describe('imports', () => {
  it('are found at all', () => {
    expect(sources.length).toBeGreaterThan(80)
    expect(sources.flatMap(({ imports }) => imports).length).toBeGreaterThan(300)
  })

  it('of the gateway and the sidecar stay with proto, core/lib and their own files', () => {
    const own = (folder: string) =>
      offences(
        under(folder),
        ({ path }, target) =>
          under('proto', 'core/lib', folder)(target) ||
          (path === 'gateway/main.ts' && under('sidecar')(target)),
      )
    expect([...own('gateway'), ...own('sidecar')]).toEqual([])
  })

  it('of core/lib reach nothing of the project but the error table', () => {
    expect(
      offences(
        under('core/lib'),
        (_, target) => under('core/lib')(target) || target === 'proto/errors.ts',
      ),
    ).toEqual([])
  })

  it('of proto reach nothing outside it', () => {
    expect(offences(under('proto'), (_, target) => under('proto')(target))).toEqual([])
  })

  it('of core never reach the processes around it', () => {
    expect(
      offences(
        under('core'),
        (_, target) => !under('gateway', 'sidecar', 'deploy', 'test')(target),
      ),
    ).toEqual([])
  })

  it('never mix the two sets of generated code in one file', () => {
    const both = sources.filter(({ imports }) =>
      gen.every((set) => imports.some(({ target }) => under(set)(target))),
    )
    expect(both.map(({ path }) => path)).toEqual([])
  })

  it("of a domain's store come from that domain alone", () => {
    expect(
      offences(
        under('core'),
        ({ path }, target) =>
          !/\/[a-z-]*store\.ts$/.test(target) || domainOf(path) === domainOf(target),
      ),
    ).toEqual([])
  })
})

describe('files', () => {
  const where = (test: (source: Source) => boolean) => sources.filter(test).map(({ path }) => path)

  it('hold SQL only in stores, the library, and the few that own a table of no domain', () => {
    const owners = /(store|sql|migrate|audit|idempotency|app)\.ts$|^core\/db\/embedded\//
    expect(
      where(
        ({ path, text }) => /\bsql`|\b(db|pool|client)\.query\(/.test(text) && !owners.test(path),
      ),
    ).toEqual([])
  })

  it('read the environment only in entry points and the command line', () => {
    const entries = /^(core|gateway|sidecar)\/main\.ts$|^core\/lib\/process\.ts$|^deploy\//
    expect(where(({ path, text }) => text.includes('process.env') && !entries.test(path))).toEqual(
      [],
    )
  })

  it('have no default export', () => {
    expect(where(({ text }) => /^export default /m.test(text))).toEqual([])
  })
})
