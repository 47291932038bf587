import type { Live, LiveCell } from './settings/reloadable.ts'
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
  /** The default; empty without one. */
  readonly fallback: string
  /** `environment`, `default`, `unset`, or the path of a file. */
  readonly source: string
  readonly secret: boolean
  /** Whether a reload may replace its value while the process runs. */
  readonly reloads: boolean
}

interface Spec {
  readonly meaning: string
  readonly fallback?: string
  readonly secret?: boolean
}

export interface EnvReaderOptions {
  /** Whether all processes run in this one, with generated secrets (decision 3). Default is false. */
  readonly isEmbedded?: boolean
  /** The paths of the files that hold settings (`environment.ts`). */
  readonly files?: Readonly<Record<string, string>>
}

/** Reads settings, and records each setting, problem and warning. */
export function createEnvReader(
  env: Env,
  { isEmbedded = false, files = {} }: EnvReaderOptions = {},
) {
  const settings: Setting[] = []
  const problems: string[] = []
  const warnings: string[] = []
  const cells: LiveCell[] = []
  let liveNames: Set<string> | null = null

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
    const absent = value === undefined ? 'unset' : 'default'
    const source = text ? (files[name] ?? 'environment') : absent
    const secret = spec.secret ?? false
    liveNames?.add(name)
    const reloads = liveNames !== null
    const { meaning, fallback = '' } = spec
    settings.push({ name, meaning, value: value ?? '', fallback, source, secret, reloads })
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
    spec: Spec & { fallback: T; choices: readonly T[] },
  ): T {
    const value = raw(name, spec)
    const choice = spec.choices.find((option) => option === value)
    if (choice === undefined) problem(`${name} must be one of ${spec.choices.join(', ')}`)
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

  /** Whether the setting has a value other than its default. */
  const isSet = (name: string): boolean => Boolean(env[name]?.trim())

  /**
   * Returns a live value: a reload replaces it by what `read` then returns. `read` must read the
   * same settings each time. A value with another `fixedPart` needs a restart.
   */
  function live<T>(read: () => T, fixedPart: (value: T) => unknown = () => undefined): Live<T> {
    const names = new Set<string>()
    liveNames = names
    const value = read()
    liveNames = null
    const cell = { names: [...names], value, fixedPart: fixedPart(value) }
    cells.push(cell)
    return () => cell.value
  }

  /** Whether the setting is also read outside of live values. */
  const isFixed = (name: string): boolean =>
    settings.some((setting) => setting.name === name && !setting.reloads)

  /** Takes over the values of `names` from a later reader. */
  function adopt(next: { readonly settings: readonly Setting[] }, names: readonly string[]): void {
    for (const [index, { name }] of settings.entries()) {
      const later = names.includes(name) && next.settings.find((each) => each.name === name)
      if (later) settings[index] = later
    }
  }

  const reloading = { live, cells, isFixed, adopt }
  const readers = { isSet, text, optional, integer, port, choice, url, list }
  return { ...readers, ...reloading, problem, warning, isEmbedded, settings, problems, warnings }
}

export type EnvReader = ReturnType<typeof createEnvReader>
