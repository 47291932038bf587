import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { type JsonObject, isObject, readText } from '../../../core/lib/json.ts'

export interface ComposeService {
  readonly name: string
  /** Whether it runs the image of deploy/docker/Dockerfile. */
  readonly isOurs: boolean
  readonly command: readonly string[]
  readonly profiles: readonly string[]
  readonly environment: Readonly<Record<string, string>>
  readonly secrets: readonly string[]
  readonly networks: readonly string[]
  readonly definition: JsonObject
}

const textsOf = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : [])

const objectOf = (value: unknown): JsonObject => (isObject(value) ? value : {})

/** Replaces `${NAME:-default}` and `$$` as Docker Compose does. Throws for any other form. */
export function interpolate(text: string, env: Readonly<Record<string, string>>): string {
  return text.replace(/\$(?:\$|\{([A-Z_]+)(?::-([^}]*))?\}|)/g, (whole, name, fallback) => {
    if (whole === '$$') return '$'
    if (typeof name !== 'string') throw new Error(`unknown variable form at: ${text}`)
    const value = env[name] || fallback
    if (value === undefined) throw new Error(`${name} has no value`)
    return String(value)
  })
}

const variablesOf = (text: string): Record<string, string> =>
  Object.fromEntries(
    [...text.matchAll(/^([A-Z_]+)=(.*)$/gm)].map(([, name = '', value = '']) => [name, value]),
  )

/** Reads compose.yaml of a folder with the values of its .env. */
export function readComposeFolder(folder: string) {
  const env = variablesOf(readFileSync(join(folder, '.env'), 'utf8'))
  const raw = readFileSync(join(folder, 'compose.yaml'), 'utf8')
  const document = objectOf(parse(interpolate(raw, env), { merge: true }))
  const services = Object.entries(objectOf(document['services'])).map(([name, value]) =>
    toService(name, objectOf(value)),
  )
  const secrets = Object.entries(objectOf(document['secrets'])).map(
    ([name, value]) => [name, join(folder, readText(objectOf(value)['file']))] as const,
  )
  return { env, document, services, secretFiles: new Map(secrets) }
}

const toService = (name: string, definition: JsonObject): ComposeService => ({
  name,
  isOurs: readText(definition['image']).startsWith('tollgate:'),
  command: textsOf(definition['command']),
  profiles: textsOf(definition['profiles']),
  environment: Object.fromEntries(
    Object.entries(objectOf(definition['environment'])).map(([key, value]) => [key, String(value)]),
  ),
  secrets: textsOf(definition['secrets']),
  networks: textsOf(definition['networks']),
  definition,
})
