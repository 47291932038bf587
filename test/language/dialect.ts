import { parseSync } from 'oxc-parser'

/** A match of a word that docs, comments and test titles seldom need. */
export interface Match {
  readonly line: number
  readonly text: string
}

export interface Measured {
  readonly words: number
  readonly matches: readonly Match[]
}

/** The measured texts of one file. */
export interface FileRates {
  readonly comments: Measured
  readonly titles: Measured
}

// Words of a private dialect, counted in November 2026 in this code base and in those of jose, graphile/worker,
// boulder and connect: 14 matches per 1,000 words here, 0.2 to 0.8 there.
const dialect =
  /\b(?:nobody|whoever|whom|tells?|told|says?|said|of which|whose|for ever|besides?|stands?|away|judge[sd]?|of it|of them|of others|goes by|at hand|none)\b/giu

const word = /[\p{L}\p{N}_]+/gu

/** The words and matches of `texts`, each with the line on which it begins. */
export function measure(texts: readonly Match[]): Measured {
  const matches = texts.flatMap(({ line, text }) =>
    [...text.matchAll(dialect)].map((match) => ({
      line: line + text.slice(0, match.index).split('\n').length - 1,
      text: lineAt(text, match.index),
    })),
  )
  return { words: texts.reduce((sum, { text }) => sum + countWords(text), 0), matches }
}

/** The comments and test titles of a TypeScript or JavaScript source. */
export function measureSource(path: string, source: string): FileRates {
  const { comments, program } = parseSync(path, source)
  const lineOf = (at: number): number => source.slice(0, at).split('\n').length
  const titles: Match[] = []
  visit(program, (node) => {
    const title = titleOf(node)
    if (title)
      titles.push({ line: lineOf(title.start), text: source.slice(title.start, title.end) })
  })
  return {
    comments: measure(comments.map(({ start, value }) => ({ line: lineOf(start), text: value }))),
    titles: measure(titles),
  }
}

/** Matches per 1,000 words. */
export const rateOf = ({ words, matches }: Measured): number =>
  words === 0 ? 0 : (matches.length * 1000) / words

const countWords = (text: string): number => text.match(word)?.length ?? 0

function lineAt(text: string, at: number): string {
  const end = text.indexOf('\n', at)
  return text.slice(text.lastIndexOf('\n', at) + 1, end < 0 ? undefined : end).trim()
}

interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string'

function visit(value: unknown, onNode: (node: Node) => void): void {
  if (Array.isArray(value)) for (const each of value) visit(each, onNode)
  if (!isNode(value)) return
  onNode(value)
  for (const child of Object.values(value)) if (typeof child === 'object') visit(child, onNode)
}

const testFunctions = new Set(['it', 'test', 'describe'])

/** The first argument of a call of `it`, `test` or `describe`, also through `it.each(…)`. */
function titleOf(node: Node): Node | null {
  if (node.type !== 'CallExpression' || !('callee' in node) || !('arguments' in node)) return null
  const [first] = Array.isArray(node.arguments) ? node.arguments : []
  const isText = isNode(first) && (first.type === 'Literal' || first.type === 'TemplateLiteral')
  return isText && testFunctions.has(rootName(node.callee)) ? first : null
}

function rootName(callee: unknown): string {
  if (!isNode(callee)) return ''
  if (callee.type === 'Identifier' && 'name' in callee) return String(callee.name)
  if ('object' in callee) return rootName(callee.object)
  return 'callee' in callee ? rootName(callee.callee) : ''
}
