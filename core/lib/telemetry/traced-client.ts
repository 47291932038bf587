import { Client, Pool } from 'pg'
import { type OpenSpan, activeTracing, inCurrentSpan } from './tracing.ts'

/** A connection whose statements are spans of the current trace, without their values. */
export class TracedClient extends Client {
  override query(...args: readonly unknown[]): never {
    const run = (parameters: readonly unknown[]): unknown =>
      Reflect.apply(super.query, this, parameters)
    const name = statementName(args[0])
    const span =
      name === undefined
        ? null
        : activeTracing()?.startChild({
            name,
            kind: 'client',
            attributes: { 'db.system.name': 'postgresql', 'db.query.summary': name },
          })
    // The overloads return a promise, nothing, or what was passed; `never` fits them all.
    return (span ? runInSpan(span, args, run) : run(args)) as never
  }
}

/** A pool of such connections. A statement keeps its span while it waits for a connection. */
export class TracedPool extends Pool {
  override connect(...args: readonly unknown[]): never {
    const [callback] = args
    const bound = isCallback(callback) ? [inCurrentSpan(callback)] : args
    return Reflect.apply(super.connect, this, bound) as never
  }
}

function runInSpan(
  span: OpenSpan,
  args: readonly unknown[],
  run: (args: readonly unknown[]) => unknown,
): unknown {
  const callback = args.at(-1)
  if (isCallback(callback)) {
    const done = (error: unknown, ...results: unknown[]): void => {
      span.end(failureOf(error))
      callback(error, ...results)
    }
    return run([...args.slice(0, -1), done])
  }
  const result = run(args)
  if (result instanceof Promise)
    result.then(
      () => span.end(),
      (error: unknown) => span.end(failureOf(error)),
    )
  else span.end()
  return result
}

type Callback = (...results: unknown[]) => void

const isCallback = (value: unknown): value is Callback => typeof value === 'function'

/** The SQLSTATE or the error code; an error's message may hold values. */
function failureOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined
  return 'code' in error && typeof error.code === 'string' ? error.code : 'failed'
}

const table = /\b(?:from|into|update|join)\s+(?:only\s+)?([a-z_][a-z0-9_]*)/i

/**
 * Names a statement: by its name if it is prepared, otherwise by its first word and table. Undefined
 * for streams, which end later than their call.
 */
export function statementName(statement: unknown): string | undefined {
  if (typeof statement === 'string') return summarize(statement)
  if (typeof statement !== 'object' || statement === null || !('text' in statement))
    return undefined
  if ('submit' in statement) return undefined
  if ('name' in statement && typeof statement.name === 'string') return statement.name
  return typeof statement.text === 'string' ? summarize(statement.text) : undefined
}

const summaries = new Map<string, string>()
const summariesMax = 1_000

function summarize(text: string): string {
  const known = summaries.get(text)
  if (known !== undefined) return known
  const [word = 'statement'] = /[a-z]+/i.exec(text) ?? []
  const name = [word.toLowerCase(), table.exec(text)?.[1]].filter(Boolean).join(' ')
  if (summaries.size >= summariesMax) summaries.clear()
  summaries.set(text, name)
  return name
}
