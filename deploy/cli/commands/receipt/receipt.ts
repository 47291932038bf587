import { writeFile } from 'node:fs/promises'
import type {
  Receipt,
  ReceiptRoots,
} from '../../../../proto/gen/ts-proto/tollgate/books/v1/receipts.ts'
import { parseObject } from '../../../../core/lib/json.ts'
import type { CoreReader } from '../../client.ts'
import { type Command, UsageError, need, parse, withCore } from '../../command.ts'
import { printJson, printLines, printable } from '../../output.ts'
import { type Check, type Trusted, checkReceipt } from './check.ts'
import { FileError, type Jwk, keysIn, readKeys, readReceipt, readRoots } from './document.ts'

const options = {
  app: { type: 'string' },
  out: { type: 'string' },
  jwks: { type: 'string' },
  issuer: { type: 'string' },
  roots: { type: 'string' },
  from: { type: 'string' },
  to: { type: 'string' },
  json: { type: 'boolean' },
} as const

type Values = ReturnType<typeof parse<typeof options>>['values']

export const receipt: Command = {
  summary: 'gets signed receipts of tickets and daily roots, and checks them offline',
  help: {
    usages: [
      {
        syntax: 'tollgate receipt get ID [--app CLIENT_ID] [--out FILE] [--jwks FILE]',
        text:
          'Gets the receipt of the ticket of the event ID: the signed statement of its cost and the reasons, and the ' +
          'proof that the ticket is in the root of its day or, until that is made, in a provisional root over its ' +
          'charge. Writes it to --out, or prints it; --jwks writes the public keys to verify it: keep them, because ' +
          'an issuer publishes old keys only for a while.',
      },
      {
        syntax:
          'tollgate receipt roots [--app CLIENT_ID] [--from DAY] [--to DAY] [--out FILE] [--jwks FILE]',
        text: "Gets the signed roots over an app's tickets of each day. Copies that are kept elsewhere reveal any later change.",
      },
      {
        syntax: 'tollgate receipt verify FILE (--jwks FILE | --issuer URL) [--roots FILE] [--json]',
        text:
          'Verifies a receipt without core and database: signatures with the keys of --jwks, or with those that ' +
          '--issuer publishes now; the sums; the proof against the signed root; with --roots also that this root is ' +
          'among the kept roots and that those form a chain. Prints each check; exits with 1 when one fails.',
      },
    ],
    examples: [
      './tollgate receipt get 6a0f2e64-4c3e-4d0e-9b1b-1f5f5a4b8a10 --out receipt.json --jwks keys.json',
      './tollgate receipt verify receipt.json --jwks keys.json',
    ],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, options)
    const [action = '', ...rest] = positionals
    const act = actions.get(action)
    if (!act) throw new UsageError('receipt needs get, roots or verify')
    return act(rest, values)
  },
}

type Act = (names: readonly string[], values: Values) => Promise<number>

const get: Act = async ([eventId, ...others], values) => {
  if (eventId === undefined || others.length > 0) throw new UsageError('receipt get takes one id')
  const request = { clientId: values.app, eventId }
  const answer = await withCore(values, (core) => core.getReceipt(request))
  if (!answer.receipt) throw new Error("core's answer lacks the receipt; is it an older version?")
  await save(toDocument(answer.receipt), answer.receipt.keys, values)
  return 0
}

const toDocument = ({ receipt: jws, proof, root, provisional, jwksUri }: Receipt) => ({
  receipt: jws,
  proof: proof ?? null,
  root: root ?? null,
  provisional,
  jwksUri,
})

const roots: Act = async (others, values) => {
  const { from, to } = values
  if (others.length > 0) throw new UsageError(`"${others[0]}" is not expected here`)
  const { app } = await need('receipt roots', values, ['app'])
  const all = await withCore(values, (core) => allRoots(core, { clientId: app, from, to }))
  await save({ clientId: app, roots: all.roots }, all.keys, values)
  return 0
}

async function allRoots(
  core: CoreReader,
  query: { clientId: string; from: string | undefined; to: string | undefined },
): Promise<ReceiptRoots> {
  const all: ReceiptRoots = { roots: [], keys: [], nextFrom: undefined }
  for (let { from } = query; ;) {
    const page: ReceiptRoots | undefined = (await core.listRoots({ ...query, from, limit: 0 }))
      .roots
    all.roots.push(...(page?.roots ?? []))
    const isNew = ({ kid }: { kid: string }) => !all.keys.some((key) => key.kid === kid)
    all.keys.push(...(page?.keys ?? []).filter(isNew))
    from = page?.nextFrom
    if (from === undefined) return all
  }
}

/**
 * Writes the document and the keys to the files of --out and --jwks. Prints the document without
 * --out.
 */
async function save(document: object, keys: readonly object[], { out, jwks }: Values) {
  const text = (value: object): string => `${JSON.stringify(value, null, 2)}\n`
  if (jwks !== undefined) await writeFile(jwks, text({ keys }))
  if (out === undefined) printJson(document)
  else await writeFile(out, text(document))
}

const verify: Act = async ([file, ...others], values) => {
  if (file === undefined || others.length > 0) throw new UsageError('receipt verify takes one file')
  if ((values.jwks === undefined) === (values.issuer === undefined))
    throw new UsageError('receipt verify needs either --jwks or --issuer, for the keys to trust')
  const checks = await checkFile(file, await trusted(values))
  const ok = checks.every(({ isRight }) => isRight !== false)
  if (values.json) printJson({ ok, checks: checks.map(toJson) })
  else printLines([...checks.map(lineOf), ok ? 'the receipt is right' : 'the receipt is NOT right'])
  return ok ? 0 : 1
}

/**
 * The keys and roots for the checks. Throws if they cannot be read, so that no verdict on the
 * receipt is printed.
 */
const trusted = async (values: Values): Promise<Trusted> => ({
  keys: await trustedKeys(values),
  issuer: values.issuer ?? null,
  roots: values.roots === undefined ? null : await readRoots(values.roots),
})

async function checkFile(file: string, against: Trusted): Promise<Check[]> {
  const document = await readReceipt(file).catch((error: unknown) => {
    if (!(error instanceof FileError)) throw error
    return { name: 'file', isRight: false, text: error.message } satisfies Check
  })
  return 'isRight' in document ? [document] : checkReceipt(document, against)
}

const fetchMs = 10_000

async function trustedKeys({ jwks, issuer = '' }: Values): Promise<Jwk[]> {
  if (jwks !== undefined) return readKeys(jwks)
  const url = `${issuer}/jwks`
  const response = await fetch(url, { redirect: 'error', signal: AbortSignal.timeout(fetchMs) })
  const object = response.ok ? parseObject(await response.text()) : null
  if (!object) throw new FileError(`${url} returned ${response.status} instead of a JWK set`)
  return keysIn(object, url)
}

const wordOf = (isRight: boolean | null): string =>
  isRight === null ? '-     ' : isRight ? 'ok    ' : 'WRONG '

const lineOf = ({ name, isRight, text }: Check): string =>
  `${wordOf(isRight)} ${name}: ${printable(text)}`

const toJson = ({ name, isRight, text }: Check) => ({ check: name, ok: isRight, detail: text })

const actions: ReadonlyMap<string, Act> = new Map([
  ['get', get],
  ['roots', roots],
  ['verify', verify],
])
