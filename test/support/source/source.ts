import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { type Comment, type Node, parseSync, visitorKeys } from 'oxc-parser'

/** Reads the project's source files as data, for the tests of its structure. */
export const root = join(import.meta.dirname, '../../..')

export interface Import {
  /** The file's path from the root. */
  readonly target: string
  readonly typeOnly: boolean
  readonly line: number
}

export interface FunctionSource {
  readonly name: string
  readonly line: number
  /** Its own lines: without inner functions, templates (SQL, HTML), comments and blank lines. */
  readonly lines: number
  /** All its lines. */
  readonly span: number
}

export interface Identifier {
  readonly name: string
  readonly line: number
}

export interface Source {
  readonly path: string
  readonly text: string
  readonly imports: readonly Import[]
  readonly functions: readonly FunctionSource[]
  /** Names that it defines: of files, functions, variables, types, parameters and members. */
  readonly names: readonly Identifier[]
  readonly comments: readonly { readonly text: string; readonly line: number }[]
}

/** Returns every file under `folders` that is tracked by git or new, without generated ones. */
export function listFiles(...folders: readonly string[]): string[] {
  const listing = execFileSync('git', ['ls-files', '-co', '--exclude-standard', ...folders], {
    cwd: root,
    encoding: 'utf8',
  })
  return listing
    .split('\n')
    .filter((path) => path !== '' && existsSync(join(root, path)))
    .toSorted()
}

export const readSources = (...folders: readonly string[]): Source[] =>
  listFiles(...folders)
    .filter((path) => path.endsWith('.ts'))
    .map((path) => readSource(path))

/** Returns the dashboard's components. */
export const readViews = (): Source[] =>
  listFiles('gateway/web')
    .filter((path) => path.endsWith('.tsx'))
    .map((path) => readSource(path))

function readSource(path: string): Source {
  const text = readFileSync(join(root, path), 'utf8')
  const { program, module, comments } = parseSync(path, text)
  const lineAt = lineCounter(text)
  const target = (specifier: string): string =>
    posix.normalize(posix.join(dirname(path), specifier))
  const own = (specifier: string): boolean => specifier.startsWith('.')
  const statics = [
    ...module.staticImports.map(({ moduleRequest, entries, start }) => ({
      specifier: moduleRequest.value,
      typeOnly: entries.length > 0 && entries.every(({ isType }) => isType),
      line: lineAt(start),
    })),
    ...module.staticExports.flatMap(({ entries, start }) =>
      entries.flatMap(({ moduleRequest, isType }) =>
        moduleRequest
          ? [{ specifier: moduleRequest.value, typeOnly: isType, line: lineAt(start) }]
          : [],
      ),
    ),
  ].flatMap(({ specifier, ...rest }) =>
    own(specifier) ? [{ target: target(specifier), ...rest }] : [],
  )
  const dynamics = module.dynamicImports.flatMap(({ moduleRequest, start }) => {
    const specifier = text.slice(moduleRequest.start + 1, moduleRequest.end - 1)
    return own(specifier)
      ? [{ target: target(specifier), typeOnly: false, line: lineAt(start) }]
      : []
  })
  const code: Code = { text, lineAt, comments, nodes: flatten(program) }
  return {
    path,
    text,
    imports: [...statics, ...dynamics],
    functions: code.nodes
      .filter(({ node }) => isFunction(node))
      .map((entry) => sizeOf(entry, code)),
    names: namesOf(code),
    comments: comments.map(({ value, start }) => ({ text: value, line: lineAt(start) })),
  }
}

interface Entry {
  readonly node: Node
  readonly parent: Entry | null
}
interface Code {
  readonly text: string
  readonly lineAt: (offset: number) => number
  readonly comments: readonly Comment[]
  readonly nodes: readonly Entry[]
}

function flatten(program: Node): Entry[] {
  const entries: Entry[] = []
  const visit = (node: Node, parent: Entry | null): void => {
    const entry = { node, parent }
    entries.push(entry)
    for (const key of visitorKeys[node.type] ?? []) {
      const child: unknown = Reflect.get(node, key)
      for (const one of Array.isArray(child) ? child : [child]) if (isNode(one)) visit(one, entry)
    }
  }
  visit(program, null)
  return entries
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && 'start' in value

const isFunction = (node: Node): boolean =>
  (node.type === 'FunctionDeclaration' ||
    node.type === 'FunctionExpression' ||
    node.type === 'ArrowFunctionExpression') &&
  node.body !== null

function lineCounter(text: string): (offset: number) => number {
  const starts = [0]
  for (let i = text.indexOf('\n'); i >= 0; i = text.indexOf('\n', i + 1)) starts.push(i + 1)
  return (offset) => {
    let [low, high] = [0, starts.length - 1]
    while (low < high) {
      const middle = (low + high + 1) >> 1
      if ((starts[middle] ?? 0) <= offset) low = middle
      else high = middle - 1
    }
    return low + 1
  }
}

/** Counts the function's lines that belong to no function or template inside it. */
function sizeOf(entry: Entry, { text, lineAt, comments, nodes }: Code): FunctionSource {
  const { node } = entry
  const [first, last] = [lineAt(node.start), lineAt(node.end - 1)]
  const foreign = new Set<number>()
  const leave = (from: number, to: number): void => {
    for (let line = from; line <= to; line++) foreign.add(line)
  }
  for (const other of nodes) {
    const inner = other.node
    if (inner === node || inner.start < node.start || inner.end > node.end) continue
    const [from, to] = [lineAt(inner.start), lineAt(inner.end - 1)]
    if (to === from) continue
    // A named function counts separately; a callback counts as part of its statement.
    if (isFunction(inner)) leave(nameOf(other) === '' ? from + 1 : from, to)
    if (inner.type === 'TemplateLiteral') leave(from + 1, to)
  }
  for (const { start, end } of comments) {
    if (text.slice(text.lastIndexOf('\n', start) + 1, start).trim() === '')
      leave(lineAt(start), lineAt(end - 1))
  }
  const lines = text.split('\n').slice(first - 1, last)
  const counted = lines.filter((line, i) => line.trim() !== '' && !foreign.has(first + i))
  return {
    name: nameOf(entry) || 'callback',
    line: first,
    lines: counted.length,
    span: last - first + 1,
  }
}

function nameOf({ node, parent }: Entry): string {
  if (node.type === 'FunctionDeclaration') return node.id?.name ?? ''
  const holder = parent?.node
  if (holder?.type === 'VariableDeclarator' && holder.id.type === 'Identifier')
    return holder.id.name
  if (holder?.type === 'Property' && holder.key.type === 'Identifier') return holder.key.name
  if (holder?.type === 'MethodDefinition' && holder.key.type === 'Identifier')
    return holder.key.name
  return ''
}

const declarations = new Set([
  'FunctionDeclaration',
  'ClassDeclaration',
  'TSInterfaceDeclaration',
  'TSTypeAliasDeclaration',
  'VariableDeclarator',
])
const members = new Set(['TSPropertySignature', 'TSMethodSignature', 'MethodDefinition'])
const patterns = new Set(['ObjectPattern', 'ArrayPattern', 'AssignmentPattern', 'RestElement'])

function namesOf({ nodes, lineAt }: Code): Identifier[] {
  const names: Identifier[] = []
  for (const { node, parent } of nodes) {
    if (node.type !== 'Identifier' || !parent) continue
    const holder = parent.node
    const declares =
      (declarations.has(holder.type) && Reflect.get(holder, 'id') === node) ||
      (members.has(holder.type) && Reflect.get(holder, 'key') === node) ||
      (isFunction(holder) && isParameter(holder, node)) ||
      patterns.has(holder.type) ||
      (holder.type === 'Property' && parent.parent?.node.type === 'ObjectPattern')
    if (declares) names.push({ name: node.name, line: lineAt(node.start) })
  }
  return names
}

const isParameter = (holder: Node, node: Node): boolean => {
  const parameters: unknown = Reflect.get(holder, 'params')
  return Array.isArray(parameters) && parameters.includes(node)
}
