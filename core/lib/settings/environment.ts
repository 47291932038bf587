import { existsSync, readFileSync, statSync } from 'node:fs'
import { isObject } from '../json.ts'
import type { Env } from '../env.ts'
import { didYouMean } from '../names/did-you-mean.ts'
import { removalAdvice } from './removed.ts'
import { secretNames, settingNames } from './names.ts'

/** Settings by name, wherever they are set. */
export interface Environment {
  readonly env: Env
  /** The path of the file with a setting's value, for settings that are in a file. */
  readonly files: Readonly<Record<string, string>>
}

const defaultPath = 'tollgate.yaml'
const maxDocumentBytes = 1024 * 1024
const maxSecretBytes = 64 * 1024

const secretFiles = new Map(secretNames.map((name) => [`${name}_FILE`, name]))
const documentNames = new Set([...settingNames, ...secretFiles.keys()])
documentNames.delete('TOLLGATE_CONFIG')

/**
 * Completes `variables` by the settings file TOLLGATE_CONFIG, by default `tollgate.yaml` in the
 * working directory if it exists, and by the files that NAME_FILE names for a secret NAME
 * (docs/configuration.md). A variable wins over the settings file. Rejects with all problems, one
 * error each; a message never holds a value.
 */
export async function readEnvironment(variables: Env): Promise<Environment> {
  const problems: string[] = []
  const set = toSet(variables)
  const path = set['TOLLGATE_CONFIG'] ?? defaultPath
  const document = await readDocument(path, set['TOLLGATE_CONFIG'] !== undefined, problems)
  const env: Record<string, string> = { ...withoutOverridden(document, set), ...set }
  const files = Object.fromEntries(
    Object.keys(env).flatMap((name) => (name in set ? [] : [[name, path]])),
  )
  for (const [name, secret] of secretFiles) {
    const file = env[name]
    if (file === undefined) continue
    if (env[secret] === undefined) {
      env[secret] = readSecret(name, file, problems)
      files[secret] = file
    } else problems.push(`${secret} and ${name} are both set; remove one of them`)
    delete env[name]
    delete files[name]
  }
  if (problems.length > 0)
    throw new AggregateError(
      problems.map((line) => new Error(line)),
      'bad settings',
    )
  return { env, files }
}

/** The variables with a value: an empty one counts as unset. */
function toSet(variables: Env): Record<string, string> {
  return Object.fromEntries(
    Object.entries(variables).flatMap(([name, value]) =>
      value === undefined || value.trim() === '' ? [] : [[name, value]],
    ),
  )
}

/** A variable replaces a secret of the document in both of its forms. */
function withoutOverridden(document: Env, set: Env): Record<string, string> {
  const overridden = new Set(
    [...secretFiles].flatMap(([name, secret]) =>
      set[name] !== undefined || set[secret] !== undefined ? [name, secret] : [],
    ),
  )
  return Object.fromEntries(
    Object.entries(toSet(document)).filter(([name]) => !overridden.has(name)),
  )
}

/** Reads the settings file. A missing one is a problem only if it `isNamed`. */
async function readDocument(path: string, isNamed: boolean, problems: string[]): Promise<Env> {
  if (!isNamed && !existsSync(path)) return {}
  const text = readText(path, { name: 'TOLLGATE_CONFIG', maxBytes: maxDocumentBytes, problems })
  // Imported here, so that a process without a settings file does not load the parser.
  const { parseDocument } = await import('yaml')
  // In this schema every scalar is the text in the file, so no digit of a number is lost.
  const document = parseDocument(text, { schema: 'failsafe', prettyErrors: false })
  const [error] = document.errors
  if (error) {
    const line = text.slice(0, error.pos[0]).split('\n').length
    problems.push(`${path}, line ${line}: is not YAML (${error.code})`)
    return {}
  }
  try {
    return toVariables(path, document.toJS({ maxAliasCount: 100 }), problems)
  } catch {
    problems.push(`${path} has too many aliases`)
    return {}
  }
}

function toVariables(path: string, document: unknown, problems: string[]): Env {
  if (document === null || document === '') return {}
  if (!isObject(document)) {
    problems.push(`${path} must hold a mapping of settings, such as "RATE_FIXED: 3000"`)
    return {}
  }
  const env: Record<string, string> = {}
  for (const [key, value] of Object.entries(document)) {
    const name = key.toUpperCase()
    const text = toText(value)
    const advice = removalAdvice(name)
    if (advice !== undefined)
      problems.push(`${path}: ${key} is a setting of an earlier release; ${advice}`)
    else if (!documentNames.has(name))
      problems.push(`${path}: ${key} is not a setting${didYouMean(name, [...documentNames])}`)
    else if (env[name] !== undefined) problems.push(`${path}: ${name} is set twice`)
    else if (text === null) problems.push(`${path}: ${name} must be a value or a list of values`)
    else env[name] = text
  }
  return env
}

/** A list becomes the text of a setting that takes several values. Null for what is neither. */
function toText(value: unknown): string | null {
  if (value === null) return ''
  if (typeof value === 'string') return value
  const isList = Array.isArray(value) && value.every((each) => typeof each === 'string')
  return isList ? value.join(',') : null
}

/** Returns the secret in a file, without the line break at its end. */
function readSecret(name: string, path: string, problems: string[]): string {
  const known = problems.length
  const secret = readText(path, { name, maxBytes: maxSecretBytes, problems }).trim()
  if (secret === '' && problems.length === known) problems.push(`${name}: ${path} is empty`)
  return secret
}

interface TextOptions {
  /** The setting that names the file. */
  readonly name: string
  readonly maxBytes: number
  readonly problems: string[]
}

/** Returns the text of a file; empty on a problem. */
function readText(path: string, { name, maxBytes, problems }: TextOptions): string {
  try {
    if (statSync(path).size <= maxBytes) return readFileSync(path, 'utf8')
    problems.push(`${name}: ${path} is larger than ${maxBytes / 1024} KiB`)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    problems.push(`${name}: cannot read its file: ${why}`)
  }
  return ''
}
