import { didYouMean } from '../../core/lib/names/did-you-mean.ts'
import { isObject } from '../../core/lib/json.ts'
import { DomainError } from '../../proto/errors.ts'
import { type CoreClient, type CoreReader, connectCore } from './client.ts'
import { type Help, describeOptions, describeUsage } from './help.ts'
import {
  type Choices,
  type Options,
  UsageError,
  type Values,
  formatOptionName,
  parse,
} from './options.ts'
import { printJson, printLines } from './output.ts'
import { type CoreTarget, findCore, requireConsent } from './target.ts'

export interface Command {
  readonly name: string
  /** Completes the sentence "The command ...", without a full stop. */
  readonly summary: string
  readonly help: Help
  /** Resolves to the exit code. */
  run(argv: readonly string[]): Promise<number>
}

/** What a command does: it has exactly one of `read`, `change` and `run`. */
interface Declaration<O extends Options, Answer> extends Choices<keyof NoInfer<O> & string> {
  /** The help: complete sentences, without line breaks. */
  readonly text: string
  readonly options?: O
  /** Reads from core. */
  read?(core: CoreReader, values: Values<O>): Promise<Answer>
  /** Calls RPCs of core that write. */
  change?(core: CoreClient, values: Values<O>): Promise<Answer>
  /** Works without core. */
  run?(values: Values<O>): Promise<Answer> | Answer
  /** The document that --json prints; by default the answer. */
  json?(answer: Answer, values: Values<O>): unknown
  /** The answer for people. Without it the command prints its document, if it is defined. */
  lines?(answer: Answer, values: Values<O>): readonly string[]
  /** Whether the command exits with 1. */
  isFailure?(answer: Answer): boolean
}

/** A command line of a command: its only one, or that of a verb. */
export interface Action extends Choices {
  readonly text: string
  readonly options: Options
  readonly hasLines: boolean
  /** Runs the command line `name` and resolves to the exit code. */
  run(name: string, argv: readonly string[]): Promise<number>
}

export function action<const O extends Options, Answer>(
  declaration: Declaration<O, Answer>,
): Action {
  const { text, oneOf = [], atMostOne = [], lines } = declaration
  const options: Options = declaration.options ?? {}

  async function run(name: string, argv: readonly string[]): Promise<number> {
    const values = await parse(name, argv, declaration)
    const answer = await answerOf(declaration, values).catch((error: unknown) => {
      throw nameOption(error, options)
    })
    const document = declaration.json ? declaration.json(answer, values) : answer
    if (lines && !values.json)
      printLines([...lines(answer, values), ...moreLines(name, argv, answer)])
    else if (lines || document !== undefined) printJson(document ?? null)
    return declaration.isFailure?.(answer) ? 1 : 0
  }

  return { text, options, oneOf, atMostOne, hasLines: lines !== undefined, run }
}

async function answerOf<O extends Options, Answer>(
  { read, change, run }: Declaration<O, Answer>,
  values: Values<O>,
): Promise<Answer> {
  if (read) return withCore(values, (core) => read(core, values))
  if (change) return changeCore(values, (core) => change(core, values))
  if (run) return run(values)
  throw new Error('an action has read, change or run')
}

/** The command line that prints the next page. */
function moreLines(name: string, argv: readonly string[], answer: unknown): string[] {
  const cursor = isObject(answer) ? answer['nextCursor'] : undefined
  if (typeof cursor !== 'string' || cursor === '') return []
  const words = argv.filter(
    (word, at) => !/^--cursor(=|$)/.test(word) && argv[at - 1] !== '--cursor',
  )
  return [`more: ${['./tollgate', name, ...words].join(' ')} --cursor ${cursor}`]
}

/** Replaces the field at the start of core's message by the option that fills it. */
function nameOption(error: unknown, options: Options): unknown {
  const message = error instanceof DomainError ? error.message : ''
  const [field] = /^[A-Za-z-]+(?= (?:must|is|may|needs)\b)/.exec(message) ?? []
  if (field === undefined) return error
  const isField = (key: string): boolean =>
    key.toLowerCase() === field.replaceAll('-', '').toLowerCase()
  const match = Object.entries(options).find(([key, { isArgument }]) => isField(key) && !isArgument)
  if (!match) return error
  return new Error(`${formatOptionName(...match)}${message.slice(field.length)}`, { cause: error })
}

interface CommandParts {
  readonly summary: string
  readonly examples: readonly string[]
  /** A paragraph of the help that applies to every action. */
  readonly note?: string
  /** The actions by their verbs, or the only action. */
  readonly actions?: Readonly<Record<string, Action>>
  readonly action?: Action
}

export function createCommand(
  name: string,
  { summary, action, actions = action ? { '': action } : {}, ...help }: CommandParts,
): Command {
  const usages = Object.entries(actions).map(([verb, act]) => describeUsage(join(name, verb), act))
  const options = describeOptions(Object.values(actions))

  async function run(argv: readonly string[]): Promise<number> {
    const verbs = Object.keys(actions)
    const verb = verbs.find((each) => wordsOf(each).every((word, at) => argv[at] === word))
    const act = verb === undefined ? undefined : actions[verb]
    if (verb === undefined || !act)
      throw new UsageError(`${name} takes ${verbs.join(', ')}${didYouMean(argv[0] ?? '', verbs)}`)
    return act.run(join(name, verb), argv.slice(wordsOf(verb).length))
  }

  return { name, summary, help: { ...help, usages, options }, run }
}

const wordsOf = (verb: string): string[] => (verb === '' ? [] : verb.split(' '))

const join = (name: string, verb: string): string => [name, ...wordsOf(verb)].join(' ')

/** The option to select a core other than the one of this folder. */
export interface Target {
  readonly target?: string | undefined
}

/**
 * Runs `work` with a read-only connection to the core of --target, CORE_TARGET, or the data
 * directory.
 */
export async function withCore<T>(
  { target }: Target,
  work: (core: CoreReader) => Promise<T>,
): Promise<T> {
  return connected(await findCore(target), work)
}

/**
 * Like withCore, but may write. Throws if core is neither the caller's own quickstart nor named by
 * --target.
 */
export async function changeCore<T>(
  { target }: Target,
  work: (core: CoreClient) => Promise<T>,
): Promise<T> {
  const core = await findCore(target)
  requireConsent(core)
  return connected(core, work)
}

async function connected<T>(
  { address }: CoreTarget,
  work: (core: CoreClient) => Promise<T>,
): Promise<T> {
  const core = connectCore(address)
  try {
    return await work(core)
  } catch (error) {
    if (error instanceof Error && error.message.startsWith('core does not answer')) {
      const why = error.message.slice('core does not answer'.length) || '; is the service running?'
      throw new Error(`core does not answer at ${address.target}${why}`, { cause: error })
    }
    throw error
  } finally {
    core.close()
  }
}
