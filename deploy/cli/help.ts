import { command, heading } from './colors.ts'
import { type Choices, type Option, type Options, formatOptionName } from './options.ts'

/**
 * The help of a command. `--help` prints it and docs/cli.md is generated from it, so that both are
 * the same.
 */
export interface Help {
  readonly usages: readonly Usage[]
  readonly options?: readonly OptionGroup[]
  /** A paragraph that applies to every usage. */
  readonly note?: string
  /** Complete, working command lines. */
  readonly examples: readonly string[]
}

export interface Usage {
  /** The command line, on one line: `tollgate app list [--limit N]`. */
  readonly syntax: string
  /** What it does, in complete sentences, without line breaks. */
  readonly text: string
}

export interface OptionGroup {
  readonly title: string
  readonly options: readonly (readonly [flag: string, meaning: string])[]
}

const columns = 100
const indent = '  '

/** Renders the text that `--help` prints. */
export function renderHelp({ usages, options = [], note, examples }: Help): string {
  const blocks = [
    [heading('Usage'), usages.map(renderUsage).join('\n\n')].join('\n'),
    ...options.map(renderOptions),
    ...(note === undefined ? [] : [wrap(note, { first: '', rest: '' }).join('\n')]),
    [heading('Examples'), ...examples.map((line) => indent + line)].join('\n'),
  ]
  return `${blocks.join('\n\n')}\n`
}

function renderUsage({ syntax, text }: Usage): string {
  const [first = '', ...rest] = wrap(syntax, { first: indent, rest: indent.repeat(5) })
  const colored = first.replace(/tollgate [a-z-]+(?: [a-z-]+(?= |$))?/, command)
  return [
    colored,
    ...rest,
    ...wrap(text, { first: indent.repeat(2), rest: indent.repeat(2) }),
  ].join('\n')
}

function renderOptions({ title, options }: OptionGroup): string {
  const width = Math.max(...options.map(([flag]) => flag.length))
  const rest = indent + ' '.repeat(width + 2)
  const lines = options.flatMap(([flag, meaning]) =>
    wrap(meaning, { first: `${indent}${flag.padEnd(width)}  `, rest }),
  )
  return [heading(title), ...lines].join('\n')
}

/** Breaks a text into lines of at most 100 columns. `[--option VALUE]` stays on one line. */
function wrap(text: string, { first, rest }: { first: string; rest: string }): string[] {
  const words = text.match(/\[[^\]]*\]\S*|\S+/g) ?? []
  const lines: string[] = []
  let line = first
  let isEmpty = true
  for (const word of words) {
    if (!isEmpty && line.length + 1 + word.length > columns) {
      lines.push(line)
      line = rest
      isEmpty = true
    }
    line += isEmpty ? word : ` ${word}`
    isEmpty = false
  }
  return [...lines, line]
}

/** The declaration of a command line, as far as its help needs it. */
interface Described extends Choices {
  readonly text: string
  readonly options: Options
  readonly hasLines: boolean
}

/** Writes the syntax of a command line from its options. */
export function describeUsage(name: string, action: Described): Usage {
  const { text, options, oneOf = [], atMostOne = [], hasLines } = action
  const words = Object.entries(options).flatMap(([key, option]) => {
    const choice = [...oneOf, ...atMostOne].find((keys) => keys.includes(key))
    if (choice) return choice[0] === key ? [choiceOf(choice, options, oneOf.includes(choice))] : []
    const syntax = syntaxOf(key, option)
    if (option.isRequired && !option.findDefault) return [syntax]
    return [option.isMultiple ? `[${syntax}]...` : `[${syntax}]`]
  })
  if (hasLines && !options['json']) words.push('[--json]')
  return { syntax: ['tollgate', name, ...words].join(' '), text }
}

/** Writes options that exclude each other. */
function choiceOf(keys: readonly string[], options: Options, isRequired: boolean): string {
  const syntaxes = keys.flatMap((key) => {
    const option = options[key]
    return option ? [`${syntaxOf(key, option)}${option.isMultiple ? '...' : ''}`] : []
  })
  return isRequired ? `(${syntaxes.join(' | ')})` : `[${syntaxes.join(' | ')}]`
}

const syntaxOf = (key: string, option: Option<unknown>): string =>
  option.isArgument || option.label === undefined
    ? formatOptionName(key, option)
    : `${formatOptionName(key, option)} ${option.label}`

/** Lists the options that have a meaning, each once. */
export function describeOptions(actions: readonly Described[]): OptionGroup[] {
  const meanings = new Map<string, string>()
  for (const { options } of actions)
    for (const [key, option] of Object.entries(options))
      if (option.meaning !== undefined) meanings.set(syntaxOf(key, option), option.meaning)
  return meanings.size === 0 ? [] : [{ title: 'Options', options: [...meanings] }]
}
