import {
  appendFileSync,
  createReadStream,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

/**
 * Checks that no log contains a secret. All logs of the suite, and all secrets that its helpers
 * create, are written to a folder, which is searched after the last test.
 */
const variable = 'TOLLGATE_TEST_LOGS'

/** Creates the folder. Must run before any worker starts, because workers inherit its path. */
export function openRun(env: NodeJS.ProcessEnv): string {
  return (env[variable] ??= mkdtempSync(join(tmpdir(), 'tollgate-logs-')))
}

const folder = (): string | undefined => process.env[variable]

/** Records one or more log lines. */
export function keepLog(text: string): void {
  const to = folder()
  if (to !== undefined)
    appendFileSync(join(to, `${process.pid}.log`), text.endsWith('\n') ? text : `${text}\n`)
}

const shortest = 8

/**
 * Records a secret without a recognisable form, such as a password, service token or webhook
 * secret. Returns it.
 */
export function registerSecret<Text extends string>(text: Text): Text {
  const to = folder()
  if (to !== undefined && text.length >= shortest)
    appendFileSync(join(to, `${process.pid}.secrets`), `${JSON.stringify(text)}\n`)
  return text
}

// NAME_FILE holds a path.
const secretSetting = /^(?!.*_FILE$).*(TOKEN$|SECRET|PEPPERS|ENCRYPTION_KEY|PASSWORD)/

/** Records the secret settings of a process. */
export function secretSettings(env: Readonly<Record<string, string | undefined>>): void {
  for (const [name, value] of Object.entries(env)) {
    if (!secretSetting.test(name)) continue
    for (const part of (value ?? '').split(',')) registerSecret(part.replace(/^p\d+:/, ''))
  }
}

/** Forms by which secrets are recognised, whether or not they were recorded. */
const forms: Readonly<Record<string, RegExp>> = {
  'a secret of ours': /svc_[a-z]{2}_[0-9A-Za-z]{40}|\bsk_[0-9A-Za-z]{40}/,
  'a JWT': /\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}/,
  credentials: /\bbasic +[A-Za-z0-9+/]{16,}|\bbearer +[A-Za-z0-9._~+/-]{16,}/i,
  // 256 bits in base62 with a checksum, or in base64url: sessions, codes, CSRF tokens.
  'a random token':
    /(?<![\w-])(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*\d)(?:[0-9A-Za-z]{49}|[\w-]{43})(?![\w-])/,
}

export interface Leak {
  readonly what: string
  /** The line, with the secret replaced by ***. */
  readonly line: string
}

const word = /[\w-]{8,}/g

/**
 * Returns a function that searches a line for secrets. Most secrets are one word, so a line is
 * compared with thousands by a set look-up.
 */
export function createSearch(secrets: readonly string[]): (line: string) => Leak[] {
  const words = new Set(secrets.filter((secret) => /^[\w-]+$/.test(secret)))
  const others = secrets.filter((secret) => !words.has(secret))
  return (line) => {
    const leaked =
      others.find((secret) => line.includes(secret)) ??
      line.match(word)?.find((each) => words.has(each))
    const known =
      leaked === undefined
        ? []
        : [{ what: 'a secret of the tests', line: line.replaceAll(leaked, '***') }]
    const shaped = Object.entries(forms)
      .filter(([, form]) => form.test(line))
      .map(([what, form]) => ({
        what,
        line: line.replaceAll(new RegExp(form, `${form.flags}g`), '***'),
      }))
    return [...known, ...shaped]
  }
}

export interface Searched {
  readonly lines: number
  readonly secrets: number
  readonly leaks: readonly Leak[]
}

const leaksMax = 20

/** Searches every file in the folder of a run, then removes the folder. */
export async function searchRun(runFolder: string): Promise<Searched> {
  const files = readdirSync(runFolder)
  const secrets = [
    ...new Set(
      files
        .filter((file) => file.endsWith('.secrets'))
        .flatMap((file) => secretsOf(join(runFolder, file))),
    ),
  ]
  const search = createSearch(secrets)
  let lines = 0
  const leaks: Leak[] = []
  for (const file of files.filter((each) => each.endsWith('.log'))) {
    for await (const line of createInterface(createReadStream(join(runFolder, file)))) {
      lines++
      if (leaks.length < leaksMax) leaks.push(...search(line))
    }
  }
  rmSync(runFolder, { recursive: true, force: true })
  return { lines, secrets: secrets.length, leaks }
}

const secretsOf = (file: string): string[] =>
  readFileSync(file, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => String(JSON.parse(line)))
