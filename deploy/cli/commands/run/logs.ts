import { createReadStream } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { isObject, parseObject } from '../../../../core/lib/json.ts'
import { resolveDataDir } from '../../../all-in-one/data-dir.ts'
import { type Command, UsageError, parse } from '../../command.ts'
import { level as colored } from '../../colors.ts'
import { printable } from '../../output.ts'

const linesMax = 100_000
const chunkBytes = 65_536
const followMs = 500

/** Log levels by their numbers in pino. */
const levels: Readonly<Record<string, number>> = {
  trace: 10,
  debug: 20,
  info: 30,
  warn: 40,
  error: 50,
  fatal: 60,
}

export const logs: Command = {
  summary: 'shows the log of the service, readable',
  help: {
    usages: [
      {
        syntax: 'tollgate logs [FILE | -] [--lines N] [--level LEVEL] [--follow] [--json]',
        text:
          'Prints the last N lines (100) of the log of the all-in-one service in the data directory, or of FILE, or ' +
          'all of the standard input. Each line has its time, level, process, message and fields; with --json it is ' +
          'printed unchanged. --level leaves out lines below LEVEL. --follow continues with new lines.',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [
          ['--lines N', 'How many of the last lines are read, 100 by default, at most 100000.'],
          ['--level LEVEL', 'trace, debug, info, warn, error or fatal; all of them by default.'],
        ],
      },
    ],
    examples: [
      './tollgate logs --level warn',
      './tollgate logs --follow',
      './tollgate core | ./tollgate logs -',
    ],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      lines: { type: 'string' },
      level: { type: 'string' },
      follow: { type: 'boolean' },
    })
    const [file = join(resolveDataDir(process.env), 'tollgate.log'), ...rest] = positionals
    if (rest.length > 0) throw new UsageError('logs takes one FILE')
    const write = createWriter(parseLevel(values.level), values.json ?? false)
    if (file === '-') for await (const line of createInterface(process.stdin)) write(line)
    else await writeFileLines(file, write, { ...values, count: parseCount(values.lines) })
    return 0
  },
}

function parseLevel(text: string | undefined): number {
  if (text === undefined) return 0
  const number = levels[text]
  if (number !== undefined) return number
  throw new UsageError(`--level must be one of: ${Object.keys(levels).join(', ')}`)
}

function parseCount(text = '100'): number {
  const count = Number(text)
  if (/^[1-9]\d*$/.test(text) && count <= linesMax) return count
  throw new UsageError(`--lines must be from 1 to ${linesMax}`)
}

type Write = (line: string) => void

async function writeFileLines(
  path: string,
  write: Write,
  { count, follow = false }: { count: number; follow?: boolean | undefined },
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
    if (entry && Number(entry['level'] ?? 0) < minimum) return
    process.stdout.write(`${asJson ? line : entry ? textOf(entry) : printable(line)}\n`)
  }

const known = new Set(['level', 'time', 'name', 'process', 'msg', 'err'])

function textOf(entry: Readonly<Record<string, unknown>>): string {
  const { level, time, name, process: part, msg, err } = entry
  const word = Object.keys(levels).find((one) => levels[one] === level) ?? String(level)
  const at = typeof time === 'number' ? new Date(time).toISOString() : String(time ?? '')
  const fields = Object.entries(entry)
    .filter(([key]) => !known.has(key))
    .map(([key, value]) => `${key}=${valueOf(value)}`)
  const head = [at, colored(word), String(part ?? name ?? '').padEnd(8)].join(' ')
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
