import { userInfo } from 'node:os'
import { type ParseArgsConfig, parseArgs } from 'node:util'
import { didYouMean } from '../../core/lib/names/did-you-mean.ts'
import { findDefaultApp } from './target.ts'

/** Wrong usage of a command, described by the message. */
export class UsageError extends Error {}

/** An option or a positional argument. Its key is the field that it fills in a request to core. */
export interface Option<T> {
  /** The placeholder of the value, such as NAME, except for a switch. */
  readonly label?: string
  /** The name on the command line; by default the key in kebab case. */
  readonly flag?: string
  readonly meaning?: string
  readonly isArgument?: boolean
  readonly isRequired?: boolean
  readonly isMultiple?: boolean
  /** Finds a value for a required option that is missing. */
  readonly findDefault?: (target: string | undefined) => Promise<string | undefined>
  /** Converts the given texts. Throws a UsageError that starts with `name`. */
  readonly convert: (texts: readonly string[], name: string) => T
}

export type Options = Readonly<Record<string, Option<unknown>>>

/** The options of every command. */
interface CommonValues {
  readonly json: boolean
  readonly target: string | undefined
}

export type Values<O extends Options> = CommonValues & {
  readonly [Key in keyof O]: O[Key] extends Option<infer T> ? T : never
}

type Look = Pick<Option<unknown>, 'flag' | 'meaning'>

export function text(label: string, look: Look & { readonly fallback: string }): Option<string>
export function text(label: string, look?: Look): Option<string | undefined>
export function text(
  label: string,
  { fallback, ...look }: Look & { readonly fallback?: string } = {},
): Option<string | undefined> {
  return { ...look, label, convert: (texts) => texts.at(-1) ?? fallback }
}

export const required = (label: string, look: Look = {}): Option<string> => ({
  ...look,
  label,
  isRequired: true,
  convert: (texts) => texts.at(-1) ?? '',
})

/** A required positional argument. */
export const argument = (label: string): Option<string> => ({
  ...required(label),
  isArgument: true,
})

export const optionalArgument = (label: string): Option<string | undefined> => ({
  ...text(label),
  isArgument: true,
})

/** A switch, without a value. */
export const toggle = (look: Look = {}): Option<boolean> => ({
  ...look,
  convert: (texts) => texts.length > 0,
})

/** An option that may be repeated. */
export const list = (label: string, look: Look = {}): Option<string[]> => ({
  ...look,
  label,
  isMultiple: true,
  convert: (texts) => [...texts],
})

/** Converts each text of an option by `parse`. */
export const parsed = <T>(
  option: Option<string | undefined>,
  parse: (text: string, name: string) => T,
): Option<T | undefined> => ({
  ...option,
  convert: (texts, name) => {
    const word = option.convert(texts, name)
    return word === undefined ? undefined : parse(word, name)
  },
})

interface Range {
  readonly from: number
  readonly to?: number
}

/** A whole number. */
export function integer(
  label: string,
  look: Look & Range & { readonly fallback: number },
): Option<number>
export function integer(label: string, look: Look & Range): Option<number | undefined>
export function integer(
  label: string,
  { from, to, fallback, ...look }: Look & Range & { readonly fallback?: number },
): Option<number | undefined> {
  const allowed = `a whole number from ${from}${to === undefined ? '' : ` to ${to}`}`
  return {
    ...look,
    label,
    convert: (texts, name) => {
      const word = texts.at(-1)
      if (word === undefined) return fallback
      const value = Number(word)
      if (/^\d{1,15}$/.test(word) && value >= from && value <= (to ?? value)) return value
      throw new UsageError(`${name} must be ${allowed}`)
    },
  }
}

/** A decimal number. */
export const number = (
  label: string,
  { from, to, fallback, ...look }: Look & Required<Range> & { readonly fallback: number },
): Option<number> => ({
  ...look,
  label,
  convert: (texts, name) => {
    const word = texts.at(-1) ?? String(fallback)
    const value = Number(word)
    if (/^\d+(\.\d+)?$/.test(word) && value >= from && value <= to) return value
    throw new UsageError(`${name} must be from ${from} to ${to}`)
  },
})

/** Parses yes or no. */
export function parseYesNo(word: string, name: string): boolean {
  if (word === 'yes' || word === 'no') return word === 'yes'
  throw new UsageError(`${name} takes yes or no`)
}

/** The app of a command. Its default is the demo app of the data directory. */
export const app: Option<string> = {
  ...required('APP', { flag: 'app' }),
  findDefault: findDefaultApp,
}

/** Limits a command to one app. */
export const appFilter = text('APP', { flag: 'app' })

/** A user of an app. */
export const appUser = {
  clientId: app,
  externalUserId: required('EXTERNAL_USER_ID', { flag: 'user' }),
}

export const page = {
  limit: integer('N', { from: 1, to: 1_000, fallback: 100 }),
  cursor: text('TEXT'),
}

export const author: Option<string> = {
  label: 'NAME',
  meaning: 'The author of this change; by default the name of the user who runs the command.',
  convert: (texts) => texts.at(-1) ?? userInfo().username,
}

/** The option --key; `repeat` describes what a repeat with the same key does not do. */
export const idempotencyKey = (repeat: string): Option<string | undefined> =>
  text('TEXT', {
    flag: 'key',
    meaning: `An idempotency key: a repeat with the same key ${repeat}.`,
  })

/** The name of an option or argument on the command line. */
export const formatOptionName = (
  key: string,
  { flag = kebab(key), label = '', isArgument }: Option<unknown>,
): string => (isArgument ? label : `--${flag}`)

const kebab = (key: string): string => key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)

const common = { json: toggle(), target: text('HOST:PORT') }

/** The rules for options that exclude each other. */
export interface Choices<Key extends string = string> {
  /** Sets with exactly one given option each. */
  readonly oneOf?: readonly (readonly Key[])[]
  /** Sets with at most one given option each. */
  readonly atMostOne?: readonly (readonly Key[])[]
}

/** Parses a command line. A UsageError names an option that is unknown, missing or wrong. */
export async function parse<O extends Options>(
  command: string,
  argv: readonly string[],
  { options, oneOf = [], atMostOne = [] }: Choices & { readonly options?: O },
): Promise<Values<O>> {
  const all: Options = { ...common, ...options }
  const texts = readTexts(command, argv, all)
  await requireAll(command, texts, all)
  requireChoice(command, texts, { all, oneOf, atMostOne })
  const values = Object.entries(all).map(([key, option]) => [
    key,
    option.convert(texts[key] ?? [], formatOptionName(key, option)),
  ])
  return Object.fromEntries(values) as Values<O>
}

/** The given texts of each option and argument. */
type Texts = Record<string, string[]>

/** Adds the defaults of required options. A UsageError names those that are still missing. */
async function requireAll(command: string, texts: Texts, all: Options): Promise<void> {
  const missing: string[] = []
  for (const [key, option] of Object.entries(all)) {
    if (!option.isRequired || texts[key]?.length) continue
    const value = await option.findDefault?.(texts['target']?.at(-1))
    if (value === undefined) missing.push(formatOptionName(key, option))
    else texts[key] = [value]
  }
  if (missing.length > 0) throw new UsageError(`${command} needs ${missing.join(' and ')}`)
}

function requireChoice(
  command: string,
  texts: Texts,
  { all, oneOf, atMostOne }: Required<Choices> & { all: Options },
): void {
  const count = (keys: readonly string[]) => keys.filter((key) => texts[key]?.length).length
  const namesOf = (keys: readonly string[]) =>
    keys.map((key) => formatOptionName(key, all[key] ?? toggle())).join(' or ')
  for (const keys of oneOf)
    if (count(keys) !== 1) throw new UsageError(`${command} needs either ${namesOf(keys)}`)
  for (const keys of atMostOne)
    if (count(keys) > 1) throw new UsageError(`${command} takes ${namesOf(keys)}, not both`)
}

function readTexts(command: string, argv: readonly string[], options: Options): Texts {
  const named = Object.entries(options).filter(([, { isArgument }]) => !isArgument)
  const types = Object.fromEntries(
    named.map(([key, option]) => [
      formatOptionName(key, option).slice(2),
      { type: option.label === undefined ? 'boolean' : 'string', multiple: true } as const,
    ]),
  )
  const { values, positionals } = parseStrictly(argv, types)
  const texts = Object.fromEntries(
    named.map(([key, option]) => [
      key,
      [values[formatOptionName(key, option).slice(2)] ?? []].flat().map(String),
    ]),
  )
  return { ...texts, ...readArguments(command, positionals, options) }
}

function readArguments(command: string, positionals: readonly string[], options: Options): Texts {
  const all = Object.entries(options).filter(([, { isArgument }]) => isArgument)
  const [, last] = all.at(-1) ?? []
  const [extra] = positionals.slice(all.length)
  if (extra !== undefined)
    throw new UsageError(
      last
        ? `${command} ${last.isRequired ? 'needs' : 'takes'} one ${last.label}`
        : `"${extra}" is not expected here`,
    )
  const missing = all.slice(positionals.length).find(([, { isRequired }]) => isRequired)
  if (missing) throw new UsageError(`${command} needs one ${missing[1].label}`)
  return Object.fromEntries(all.map(([key], at) => [key, positionals.slice(at, at + 1)]))
}

type Types = NonNullable<ParseArgsConfig['options']>

function parseStrictly(argv: readonly string[], types: Types) {
  try {
    const args = joinNegatives(argv, types)
    return parseArgs({ args, options: types, allowPositionals: true, strict: true })
  } catch (error) {
    const message = error instanceof Error ? (error.message.split('. ')[0] ?? '') : 'bad options'
    const [, unknown] = /^Unknown option '--?([^']*)'/.exec(message) ?? []
    const hint = unknown === undefined ? '' : didYouMean(unknown, Object.keys(types), '--')
    throw new UsageError(`${message}${hint}`)
  }
}

/**
 * Joins a negative number with the option before it, which would otherwise be ambiguous:
 * `--usd-micros -5`.
 */
function joinNegatives(argv: readonly string[], types: Types): string[] {
  const args: string[] = []
  for (const [i, arg] of argv.entries()) {
    const [before = '', isOption] = [argv[i - 1], !argv.slice(0, i).includes('--')]
    const takesValue = isOption && types[before.replace(/^--/, '')]?.type === 'string'
    if (takesValue && before.startsWith('--') && /^-\d/.test(arg)) args.push(`${args.pop()}=${arg}`)
    else args.push(arg)
  }
  return args
}
