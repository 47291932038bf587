import { existsSync, readFileSync } from 'node:fs'
import { glob } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { isSecret, pepperedHash } from '../../core/lib/crypto.ts'
import {
  ethRate,
  formatEth,
  microsUp,
  parseDecimal18,
  computePrice,
  wei,
} from '../../core/lib/money.ts'

const root = join(import.meta.dirname, '../..')
const read = (path: string): string => readFileSync(join(root, path), 'utf8')

const pages: string[] = []
for await (const path of glob('{*.md,docs/**/*.md}', { cwd: root })) pages.push(path)

/** Returns the anchor of a heading, as GitHub and most renderers create it. */
const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replace(/\s/g, '-')

function anchorsOf(page: string): Set<string> {
  const prose = read(page).replace(/^```.*?^```/gms, '')
  const headings = [...prose.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => anchorOf(heading))
  const named = [...prose.matchAll(/<a (?:id|name)="([^"]+)"/g)].map(([, name = '']) => name)
  return new Set([...headings, ...named])
}

interface Link {
  readonly page: string
  readonly path: string
  readonly anchor: string | undefined
}

function linksOf(page: string): Link[] {
  const prose = read(page).replace(/^```.*?^```/gms, '')
  const targets = [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target)
  return targets
    .filter((target) => !/^[a-z]+:/.test(target))
    .map((target) => {
      const [path = '', anchor] = target.split('#')
      return { page, path: path === '' ? page : join(dirname(page), path), anchor }
    })
}

/** Returns the cells of each table row below a heading. */
function rowsUnder(page: string, heading: string): string[][] {
  const section = `\n${read(page)}`.split(`\n${heading}\n`)[1]?.split(/\n#+ /)[0] ?? ''
  return section
    .split('\n')
    .filter((line) => line.startsWith('|') && !line.startsWith('|---'))
    .map((line) =>
      line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim().replaceAll('`', '')),
    )
}

/** Returns the lines of all code blocks, with continued lines joined. */
const commands = (): string[] =>
  pages.flatMap((page) =>
    [...read(page).matchAll(/^```\w*\n(.*?)^```/gms)].flatMap(([, block = '']) =>
      block.replaceAll('\\\n', ' ').split('\n'),
    ),
  )

/** Removes CSRF tokens, which are useless without the session's cookies. */
const withoutFormToken = (call: string): string => call.replaceAll(/csrf_token="\$\w+"/g, '')

describe('the pages', () => {
  it('send an Idempotency-Key with each credit', () => {
    const credits = commands().filter((line) =>
      /\/allowances\b.*-d |POST.*\/allowances\b/.test(line),
    )
    expect(credits).not.toEqual([])
    for (const credit of credits) expect(credit).toMatch(/idempotency-key'?: \S/i)
  })

  it('pass no secret as an argument', () => {
    const secret =
      /\s-u\s|-H ["']?authorization:|(secret|password|token|key)(=|\\?":\s*\\?")["']?\$/i
    const calls = commands().flatMap(
      (line) => line.match(/\b(curl|web|edit|api)\s.*/)?.slice(0, 1) ?? [],
    )
    expect(calls.length).toBeGreaterThan(10)
    expect(calls.filter((call) => secret.test(withoutFormToken(call)))).toEqual([])
  })

  it('link to existing pages, files and headings', () => {
    const links = pages.flatMap(linksOf)
    expect(links.length).toBeGreaterThan(100)
    const broken = links.filter(
      ({ path, anchor }) =>
        !existsSync(join(root, path)) ||
        (anchor !== undefined && path.endsWith('.md') && !anchorsOf(path).has(anchor)),
    )
    expect(broken).toEqual([])
  })

  it('name existing files and folders', () => {
    const missing = pages
      .filter((page) => page !== 'CHANGELOG.md')
      .flatMap((page) =>
        [...read(page).matchAll(/`((?:core|gateway|sidecar|deploy|test|proto)\/[\w./-]*)`/g)]
          .map(([, path = '']) => ({ page, path }))
          .filter(({ path }) => !existsSync(join(root, path)) && !path.startsWith('proto/gen')),
      )
    expect(missing).toEqual([])
  })

  it('name existing metrics', async () => {
    let code = ''
    for await (const path of glob('{core,gateway,sidecar}/**/*.ts', { cwd: root }))
      code += read(path)
    const metricsIn = (page: string): string[] =>
      [...read(page).matchAll(/`(tollgate_[a-z_]+)/g)].map(([, name = '']) => name)
    const named = pages.flatMap(metricsIn)
    expect(named.length).toBeGreaterThan(50)
    expect(named.filter((name) => name !== 'tollgate_' && !code.includes(name))).toEqual([])
  })

  it('list every decision in the index', () => {
    const listed = rowsUnder('docs/decisions/README.md', '# Decisions').flatMap(([link = '']) =>
      [...link.matchAll(/\((\w+\.md)\)/g)].map(([, file]) => `docs/decisions/${file}`),
    )
    const written = pages.filter((page) => /^docs\/decisions\/\d/.test(page))
    expect(listed.toSorted()).toEqual(written.toSorted())
    expect(written.length).toBeGreaterThan(60)
  })
})

describe('citations in comments', () => {
  it('name existing pages, headings and decisions', async () => {
    const cited: { source: string; page: string; heading: string | undefined }[] = []
    const sources = glob(
      '{core,gateway,sidecar,deploy,proto/tollgate,test}/**/*.{ts,mjs,sql,proto}',
      {
        cwd: root,
      },
    )
    for await (const source of sources) {
      // A citation may continue on the next line of its comment.
      const text = read(source).replace(/\n\s*(?:\*|\/\/|--)\s*/g, ' ')
      for (const [, page = '', heading] of text.matchAll(
        /(docs\/[\w/-]+\.md)(?:(?:,| \() ?"([^"\n]{1,60})")?/g,
      ))
        cited.push({ source, page, heading })
      for (const [, numbers = ''] of text.matchAll(/[dD]ecisions? ((?:\d+a?(?:, | and )?)+)/g))
        for (const [number] of numbers.matchAll(/\d+a?/g))
          cited.push({
            source,
            page: `docs/decisions/${number.padStart(number.endsWith('a') ? 3 : 2, '0')}.md`,
            heading: undefined,
          })
    }
    expect(cited.length).toBeGreaterThan(50)
    const wrong = cited.filter(
      ({ page, heading }) =>
        !pages.includes(page) || (heading !== undefined && !anchorsOf(page).has(anchorOf(heading))),
    )
    expect(wrong).toEqual([])
  })
})

describe('the vectors', () => {
  it('of secrets match the checksum and the stored hash', () => {
    const rows = rowsUnder('docs/identity.md', '## Secrets').filter((cells) => cells.length === 4)
    const vectors = rows.filter(([prefix = '']) => prefix.startsWith('svc_'))
    expect(vectors).toHaveLength(5)
    for (const [prefix = '', , , secret = ''] of vectors)
      expect([secret, isSecret(secret, prefix)]).toEqual([secret, true])
    const stored = pepperedHash(vectors[1]?.[3] ?? '', Buffer.from('p'.repeat(32)))
    expect(read('docs/identity.md')).toContain(stored.toString('hex'))
  })

  it('of the signer each have a test with their number in its title', async () => {
    const titles: string[] = []
    for await (const path of glob('test/{core/metering,sidecar}/**/*.test.ts', { cwd: root }))
      for (const [, title = ''] of read(path).matchAll(
        /^\s*(?:it|describe|\]\)|\))\(\s*['"`](.+)/gm,
      ))
        titles.push(title)
    const numbersUnder = (heading: string, syntax: RegExp): string[] =>
      rowsUnder('docs/signer-protocol.md', heading).flatMap(
        ([cell = '']) => cell.match(syntax) ?? [],
      )
    const webhook = numbersUnder('### Webhook vectors', /\d+/g)
    const events = numbersUnder('### Event vectors', /K\d+/g)
    expect([webhook.length, events.length]).toEqual([42, 25])
    const isNamed = (number: string): boolean =>
      titles.some((title) =>
        number.startsWith('K')
          ? new RegExp(`\\b${number}\\b`).test(title)
          : title.startsWith(`${number}: `),
      )
    expect([...webhook, ...events].filter((number) => !isNamed(number))).toEqual([])
  })

  it('of prices match the computed prices', () => {
    const prices = rowsUnder('docs/money.md', '## Vectors').filter(
      (cells) => cells.length === 3 && cells.every((cell) => /^\d+$/.test(cell)),
    )
    expect(prices).toHaveLength(5)
    for (const [fee = '', usd = '', micros = ''] of prices) {
      const cost = computePrice(wei(BigInt(fee)), ethRate(parseDecimal18(usd) ?? 0n))
      expect([fee, String(microsUp(cost))]).toEqual([fee, micros])
    }
    expect(formatEth(wei(8_420_000_000_000_000n))).toBe('0.00842')
  })
})
