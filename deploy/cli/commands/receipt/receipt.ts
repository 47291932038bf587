import { writeFile } from 'node:fs/promises'
import type {
  Receipt,
  ReceiptRoots,
} from '../../../../proto/gen/ts-proto/tollgate/books/v1/receipts.ts'
import { toMessage } from '../../../../core/lib/process.ts'
import type { CoreReader } from '../../client.ts'
import { action, createCommand } from '../../command.ts'
import { FileError, readTextFile } from '../../read-file.ts'
import { type Values, app, appFilter, argument, text } from '../../options.ts'
import { type Check, type Trusted, checkReceipt, judge } from '../../../../proto/receipts/check.ts'
import { type Key, readKeys, readReceipt, readRoots } from '../../../../proto/receipts/document.ts'
import { compareKept } from './roots.ts'

const files = {
  out: text('FILE'),
  jwks: text('FILE'),
}

const get = action({
  text:
    'Gets the receipt of the ticket of the event ID: the signed statement of its cost and the reasons, and the ' +
    'proof that the ticket is in the root of its day or, until that is made, in a provisional root over its ' +
    'charge. Writes it to --out, or prints it; --jwks writes the public keys to verify it: keep them, because ' +
    'an issuer publishes old keys only for a while.',
  options: { eventId: argument('ID'), clientId: appFilter, ...files },
  read: async (core, { eventId, clientId, ...files }) => {
    const { receipt } = await core.receipts.getReceipt({ clientId, eventId })
    if (!receipt) throw new Error("core's answer lacks the receipt; is it an older version?")
    return save(toDocument(receipt), receipt.keys, files)
  },
})

const roots = action({
  text: "Gets the signed roots over an app's tickets of each day. Copies that are kept elsewhere reveal any later change.",
  options: { clientId: app, from: text('DAY'), to: text('DAY'), ...files },
  read: async (core, { clientId, from, to, ...files }) => {
    const all = await allRoots(core, { clientId, from, to })
    return save({ clientId, roots: all.roots }, all.keys, files)
  },
})

const verify = action({
  text:
    'Verifies a receipt without core and database: signatures with the keys of --jwks, or with those that ' +
    '--issuer publishes now; the sums; the proof against the signed root; with --roots also that this root is ' +
    'among the kept roots and that those form a chain. Prints each check; exits with 1 if one fails, and if the ' +
    'receipt cannot be checked, because its key is unknown.',
  options: {
    file: argument('FILE'),
    jwks: text('FILE'),
    issuer: text('URL'),
    roots: text('FILE'),
  },
  oneOf: [['jwks', 'issuer']],
  run: async ({ file, ...sources }) => checkFile(file, await readTrusted(sources)),
  json: (checks) => ({ ok: judge(checks) === 'right', checks: checks.map(toJson) }),
  lines: (checks) => [...checks.map(toLine), conclusions[judge(checks)]],
  isFailure: (checks) => judge(checks) !== 'right',
})

const conclusions = {
  right: 'the receipt is right',
  wrong: 'the receipt is NOT right',
  open: 'the receipt could not be checked, so it is neither right nor wrong',
}

export const receipt = createCommand('receipt', {
  summary: 'gets signed receipts of tickets and daily roots, and checks them offline',
  examples: [
    './tollgate receipt get 6a0f2e64-4c3e-4d0e-9b1b-1f5f5a4b8a10 --out receipt.json --jwks keys.json',
    './tollgate receipt verify receipt.json --jwks keys.json',
  ],
  actions: { get, roots, verify },
})

const toDocument = ({ receipt: jws, proof, root, provisional, jwksUri }: Receipt) => ({
  receipt: jws,
  proof: proof ?? null,
  root: root ?? null,
  provisional,
  jwksUri,
})

async function allRoots(
  core: CoreReader,
  query: { clientId: string; from: string | undefined; to: string | undefined },
): Promise<ReceiptRoots> {
  const all: ReceiptRoots = { roots: [], keys: [], nextFrom: undefined }
  for (let { from } = query; ;) {
    const page: ReceiptRoots | undefined = (
      await core.receipts.listRoots({ ...query, from, limit: 0 })
    ).roots
    all.roots.push(...(page?.roots ?? []))
    const isNew = ({ kid }: { kid: string }) => !all.keys.some((key) => key.kid === kid)
    all.keys.push(...(page?.keys ?? []).filter(isNew))
    from = page?.nextFrom
    if (from === undefined) return all
  }
}

/**
 * Writes the document and the keys to the files of --out and --jwks. Returns the document without
 * --out.
 */
async function save(
  document: object,
  keys: readonly object[],
  { out, jwks }: Values<typeof files>,
): Promise<object | undefined> {
  const render = (value: object): string => `${JSON.stringify(value, null, 2)}\n`
  if (jwks !== undefined) await writeFile(jwks, render({ keys }))
  if (out === undefined) return document
  await writeFile(out, render(document))
  return undefined
}

interface Sources {
  readonly jwks: string | undefined
  readonly issuer: string | undefined
  readonly roots: string | undefined
}

/**
 * Returns the keys and roots for the checks. Throws if they cannot be read, so that no verdict on
 * the receipt is printed.
 */
async function readTrusted({ roots: file, ...sources }: Sources): Promise<Trusted> {
  const signers = { keys: await findKeys(sources), issuer: sources.issuer ?? null }
  if (file === undefined) return { ...signers, roots: null }
  const roots = await parse(file, readRoots, rootsMaxBytes)
  return {
    ...signers,
    roots: { areNeeded: true, compare: compareKept(roots, signers) },
  }
}

async function checkFile(file: string, trusted: Trusted): Promise<readonly Check[]> {
  try {
    return (await checkReceipt(await parse(file, readReceipt), trusted)).checks
  } catch (error) {
    if (!(error instanceof FileError)) throw error
    return [{ name: 'File', isRight: false, text: error.message }]
  }
}

const rootsMaxBytes = 64 * 1024 * 1024

/** Reads a file. Throws a FileError if it is unreadable, or if `read` throws. */
const parse = async <T>(file: string, read: (text: string) => T, maxBytes?: number): Promise<T> =>
  naming(file, read, await readTextFile(file, maxBytes))

function naming<T>(source: string, read: (text: string) => T, content: string): T {
  try {
    return read(content)
  } catch (error) {
    throw new FileError(`${source}: ${toMessage(error)}`, { cause: error })
  }
}

const fetchMs = 10_000

async function findKeys({ jwks, issuer = '' }: Omit<Sources, 'roots'>): Promise<Key[]> {
  if (jwks !== undefined) return parse(jwks, readKeys)
  const url = `${issuer}/jwks`
  const response = await fetch(url, { redirect: 'error', signal: AbortSignal.timeout(fetchMs) })
  if (!response.ok) throw new FileError(`${url} returned ${response.status} instead of a JWK set`)
  return naming(url, readKeys, await response.text())
}

const toWord = (isRight: boolean | null): string =>
  isRight === null ? '-     ' : isRight ? 'ok    ' : 'WRONG '

const toLine = ({ name, isRight, text }: Check): string => `${toWord(isRight)} ${name}: ${text}`

const toJson = ({ name, isRight, text }: Check) => ({ check: name, ok: isRight, detail: text })
