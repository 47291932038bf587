import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { parse } from 'yaml'
import { type JsonObject, isObject, readText } from '../../core/lib/json.ts'

export const run = promisify(execFile)
const cache = join(
  process.env['TOLLGATE_CI_CACHE'] ?? join(homedir(), '.cache/tollgate-ci'),
  'charts',
)
const programs = {
  helm: { module: 'helm.sh/helm/v3/cmd/helm', version: 'v3.22.0' },
  kubeconform: { module: 'github.com/yannh/kubeconform/cmd/kubeconform', version: 'v0.8.0' },
  compose: { module: 'github.com/compose-spec/compose-go/v2/cmd', version: 'v2.16.2' },
} as const
/** Has the types of the Kubernetes release as data; Helm depends on it. */
const kubernetes = 'k8s.io/client-go@v0.37.0'
const buildMinutes = 40

/** Returns the path of a program, which is built on first use. Needs Go. */
export async function programPath(name: keyof typeof programs): Promise<string> {
  const { module, version } = programs[name]
  const folder = join(cache, `${name}-${version}`)
  // The package of compose-go is called cmd.
  const path = join(folder, module.split('/').at(-1) ?? name)
  if (existsSync(path)) return path
  const env = { ...process.env, GOBIN: folder }
  await run('go', ['install', `${module}@${version}`], { env, timeout: buildMinutes * 60_000 })
  return path
}

/** Returns a folder with a strict JSON schema for each kind, in kubeconform's naming. */
export async function schemaFolder(kinds: readonly string[]): Promise<string> {
  const folder = join(cache, `schemas-${kubernetes.split('@')[1]}`)
  await mkdir(folder, { recursive: true })
  const { stdout } = await run('go', ['mod', 'download', '-json', kubernetes], {
    timeout: buildMinutes * 60_000,
  })
  const { Dir }: { Dir: string } = JSON.parse(stdout)
  const source = await readFile(join(Dir, 'applyconfigurations/internal/internal.go'), 'utf8')
  const [, text = ''] = /typed\.YAMLObject\(`([^`]*)`\)/.exec(source) ?? []
  const types: readonly JsonObject[] = parse(text).types
  const definitions = Object.fromEntries(
    types.map((type) => [readText(type['name']), toSchema(type)]),
  )
  for (const kind of kinds) {
    const [api = '', version = '', name = ''] = kind.split('/')
    const group = api === 'core' ? '' : `-${api.split('.')[0]}`
    const schema = { $ref: `#/definitions/io.k8s.api.${api.split('.')[0]}.${version}.${name}` }
    if (!(schema.$ref.slice('#/definitions/'.length) in definitions)) throw new Error(`no ${kind}`)
    await writeFile(
      join(folder, `${name.toLowerCase()}${group}-${version}.json`),
      JSON.stringify({ ...schema, definitions }),
    )
  }
  return join(folder, '{{ .ResourceKind }}{{ .KindSuffix }}.json')
}

const scalars: Readonly<Record<string, JsonObject>> = {
  string: { type: 'string' },
  numeric: { type: 'number' },
  boolean: { type: 'boolean' },
  untyped: {},
}

/** A JSON schema for a type of Kubernetes' structured merge; unknown fields are errors. */
function toSchema(type: JsonObject): JsonObject {
  const { namedType, scalar, list, map } = type
  if (typeof namedType === 'string') return { $ref: `#/definitions/${namedType}` }
  if (typeof scalar === 'string') return scalars[scalar] ?? {}
  if (isObject(list)) {
    const items = isObject(list['elementType']) ? toSchema(list['elementType']) : {}
    return { type: 'array', items }
  }
  if (!isObject(map)) return {}
  const { fields, elementType } = map
  if (!Array.isArray(fields))
    return {
      type: 'object',
      additionalProperties: isObject(elementType) ? toSchema(elementType) : {},
    }
  const properties = Object.fromEntries(
    fields.map((field: JsonObject) => [
      readText(field['name']),
      isObject(field['type']) ? toSchema(field['type']) : {},
    ]),
  )
  return { type: 'object', properties, additionalProperties: false }
}
