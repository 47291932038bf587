import { withoutFinalSlashes } from './text/urls.ts'

/**
 * The environment from which settings are read. Each setting is declared once with its meaning, so
 * that the parser, `tollgate config` and the README agree. All problems are reported together.
 */
export type Env = Readonly<Record<string, string | undefined>>

export interface Setting {
  readonly name: string
  readonly meaning: string
  readonly value: string
  readonly source: 'environment' | 'default' | 'unset'
  readonly secret: boolean
}

interface Spec {
  readonly meaning: string
  readonly fallback?: string
  readonly secret?: boolean
}

/**
 * Reads settings, and records each setting, problem and warning. `isEmbedded` is true if all
 * processes run in this one, with generated secrets (decision 3).
 */
export function createEnvReader(env: Env, { isEmbedded = false } = {}) {
  const settings: Setting[] = []
  const problems: string[] = []
  const warnings: string[] = []

  // Several readers of one process declare the same setting, so report each problem once.
  function problem(line: string): void {
    if (!problems.includes(line)) problems.push(line)
  }

  /** Records a setting that works but should be changed. */
  function warning(line: string): void {
    if (!warnings.includes(line)) warnings.push(line)
  }

  function raw(name: string, spec: Spec): string | undefined {
    const text = env[name]?.trim()
    const value = text || spec.fallback
    const source = text ? 'environment' : value === undefined ? 'unset' : 'default'
    const secret = spec.secret ?? false
    settings.push({ name, meaning: spec.meaning, value: value ?? '', source, secret })
    return value
  }

  function text(name: string, spec: Spec & { fallback: string }): string {
    return raw(name, spec) ?? spec.fallback
  }

  function optional(name: string, spec: Spec): string | undefined {
    return raw(name, spec)
  }

  function integer(
    name: string,
    spec: Spec & { fallback: string; min: number; max: number },
  ): number {
    const value = Number(raw(name, spec))
    if (Number.isInteger(value) && value >= spec.min && value <= spec.max) return value
    problem(`${name} must be a whole number from ${spec.min} to ${spec.max}`)
    return spec.min
  }

  function port(name: string, spec: Spec & { fallback: string }): number {
    return integer(name, { ...spec, min: 0, max: 65_535 })
  }

  function choice<T extends string>(
    name: string,
    spec: Spec & { fallback: T; of: readonly T[] },
  ): T {
    const value = raw(name, spec)
    const choice = spec.of.find((option) => option === value)
    if (choice === undefined) problem(`${name} must be one of ${spec.of.join(', ')}`)
    return choice ?? spec.fallback
  }

  function url(name: string, spec: Spec & { schemes: readonly string[] }): string | undefined {
    const value = raw(name, spec)
    if (value === undefined) return undefined
    const scheme = URL.canParse(value) ? new URL(value).protocol.slice(0, -1) : ''
    if (spec.schemes.includes(scheme)) return withoutFinalSlashes(value)
    problem(
      `${name} must be a URL that starts with ${spec.schemes.map((s) => `${s}://`).join(' or ')}`,
    )
    return undefined
  }

  function list(name: string, spec: Spec): string[] {
    return (raw(name, spec) ?? '')
      .split(',')
      .map((part) => part.trim())
      .filter(Boolean)
  }

  const readers = { text, optional, integer, port, choice, url, list }
  return { ...readers, problem, warning, isEmbedded, settings, problems, warnings }
}

export type EnvReader = ReturnType<typeof createEnvReader>
