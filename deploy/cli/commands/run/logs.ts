import { createReadStream } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { readEnvironment } from '../../../../core/lib/settings/environment.ts'
import { logLevels } from '../../../../core/lib/settings/shared.ts'
import { isObject, parseObject } from '../../../../core/lib/json.ts'
import { resolveDataDir } from '../../../local/data-dir.ts'
import { action, createCommand } from '../../command.ts'
import { level as colored } from '../../colors.ts'
import { type Option, UsageError, integer, optionalArgument, text, toggle } from '../../options.ts'
import { printable } from '../../output.ts'

const linesMax = 100_000
const chunkBytes = 65_536
const followMs = 500

const levels: readonly string[] = logLevels.filter((level) => level !== 'silent')

const minimum: Option<number> = {
  ...text('LEVEL', {
    flag: 'level',
    meaning: 'trace, debug, info, warn, error or fatal; all of them by default.',
  }),
  convert: (texts, name) => {
    const index = texts.length === 0 ? 0 : levels.indexOf(texts.at(-1) ?? '')
    if (index !== -1) return index
    throw new UsageError(`${name} must be one of: ${levels.join(', ')}`)
  },
}

export const logs = createCommand('logs', {
  summary: 'shows the log of the service, readable',
  examples: [
    './tollgate logs --level warn',
    './tollgate logs --follow',
    './tollgate core | ./tollgate logs -',
  ],
  action: action({
    text:
      'Prints the last N lines (100) of the log of the all-in-one service in the data directory, or of FILE, or ' +
      'all of the standard input if FILE is -. Each line has its time, level, process, message and fields; with ' +
      '--json it is printed unchanged. --level leaves out lines below LEVEL. --follow continues with new lines.',
    options: {
      file: optionalArgument('FILE'),
      count: integer('N', {
        flag: 'lines',
        from: 1,
        to: linesMax,
        fallback: 100,
        meaning: 'How many of the last lines are read, 100 by default, at most 100000.',
      }),
      minimum,
      follow: toggle(),
      json: toggle(),
    },
    run: async ({ minimum, json, ...range }) => {
      const { env } = await readEnvironment(process.env)
      const { file = join(resolveDataDir(env), 'tollgate.log') } = range
      const write = createWriter(minimum, json)
      if (file === '-') for await (const line of createInterface(process.stdin)) write(line)
      else await writeFileLines(file, write, range)
    },
  }),
})

type Write = (line: string) => void

async function writeFileLines(
  path: string,
  write: Write,
  { count, follow }: { readonly count: number; readonly follow: boolean },
): Promise<void> {
  let end = await withFile(path, async (file) => {
    const { start, end: size } = await findTail(file, count)
    await writeRange(path, write, { start, end: size })
    return size
  })
  if (!follow) return
  for (;;) {
    await sleep(followMs)
    const size = await withFile(path, async (file) => lastLineEnd(file))
    // The service renames a full log and starts a new one.
    if (size < end) end = 0
    await writeRange(path, write, { start: end, end: size })
    end = size
  }
}

async function withFile<T>(path: string, work: (file: FileHandle) => Promise<T>): Promise<T> {
  const file = await open(path).catch((error: NodeJS.ErrnoException) => {
    const advice = error.code === 'ENOENT' ? '; the service writes it, see npm start' : ''
    throw new Error(`cannot read ${path} (${error.code ?? ''})${advice}`, { cause: error })
  })
  return work(file).finally(() => file.close())
}

async function writeRange(
  path: string,
  write: Write,
  { start, end }: { start: number; end: number },
): Promise<void> {
  if (end <= start) return
  const input = createReadStream(path, { start, end: end - 1 })
  for await (const line of createInterface({ input, crlfDelay: Infinity })) write(line)
}

/** Finds the part of the file with its last `count` complete lines. Reads backwards. */
async function findTail(file: FileHandle, count: number): Promise<{ start: number; end: number }> {
  const end = await lastLineEnd(file)
  let lines = 0
  for (let at = end - 1; at > 0;) {
    const from = Math.max(0, at - chunkBytes)
    const chunk = await readChunk(file, from, at)
    for (let index = chunk.length - 1; index >= 0; index--) {
      if (chunk[index] !== 0x0a) continue
      lines += 1
      if (lines === count) return { start: from + index + 1, end }
    }
    at = from
  }
  return { start: 0, end }
}

/** Finds the end of the last complete line, because the service may be writing the next one. */
async function lastLineEnd(file: FileHandle): Promise<number> {
  for (let at = (await file.stat()).size; at > 0;) {
    const from = Math.max(0, at - chunkBytes)
    const index = (await readChunk(file, from, at)).lastIndexOf(0x0a)
    if (index >= 0) return from + index + 1
    at = from
  }
  return 0
}

async function readChunk(file: FileHandle, from: number, to: number): Promise<Buffer> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(to - from), 0, to - from, from)
  return buffer.subarray(0, bytesRead)
}

/** Writes a log line, unless it is below the level. A line without JSON is written unchanged. */
const createWriter =
  (minimum: number, asJson: boolean): Write =>
  (line) => {
    const entry = parseObject(line)
    if (entry && levels.indexOf(String(entry['level'])) < minimum) return
    process.stdout.write(`${asJson ? line : entry ? textOf(entry) : printable(line)}\n`)
  }

const known = new Set(['level', 'time', 'name', 'process', 'msg', 'err'])

function textOf(entry: Readonly<Record<string, unknown>>): string {
  const { level, time, name, process: part, msg, err } = entry
  const fields = Object.entries(entry)
    .filter(([key]) => !known.has(key))
    .map(([key, value]) => `${key}=${valueOf(value)}`)
  const head = [
    printable(String(time ?? '')),
    colored(printable(String(level ?? ''))),
    String(part ?? name ?? '').padEnd(8),
  ].join(' ')
  const text = printable([String(msg ?? ''), ...fields].join('  '))
  return [`${head} ${text}`, ...errorLines(err)].join('\n')
}

const valueOf = (value: unknown): string =>
  typeof value === 'string' && /^[^\s"]+$/.test(value) ? value : JSON.stringify(value)

/** An error on separate lines: its message and its stack. */
function errorLines(error: unknown): string[] {
  if (!isObject(error)) return []
  const { stack, message } = error
  const text = typeof stack === 'string' ? stack : String(message ?? '')
  return text.split('\n').map((line) => `    ${printable(line.trim())}`)
}
