import { compactVerify, decodeProtectedHeader, importJWK } from 'jose'
import { type JsonObject, isObject, parseObject } from '../../core/lib/json.ts'
import type { Key, Proof, ReceiptDocument } from './document.ts'
import { rootOfInclusion } from './inclusion.ts'
import { leafText, toLeaf } from './leaf.ts'
import { statementTypes } from './statements.ts'
import { computeSums } from './sums.ts'

/**
 * Checks a receipt with keys that the reader trusts (docs/receipts.md, "Verify"). Runs in browsers
 * and in Node.
 */

export interface Check {
  readonly name: string
  /** Null if the data for the check is missing. */
  readonly isRight: boolean | null
  /** True if the receipt is not right without this check. */
  readonly isNeeded?: true
  readonly text: string
}

export interface Trusted {
  readonly keys: readonly Key[]
  /** Null accepts every issuer that the keys belong to. */
  readonly issuer: string | null
  /** Roots that the reader compares with. Null skips that. */
  readonly roots: TrustedRoots | null
}

export interface TrustedRoots {
  /** Whether a receipt is wrong while its day has no root. */
  readonly areNeeded: boolean
  /** Compares the signed root of a day. `day` are the claims of this root. */
  readonly compare: (root: string, day: JsonObject) => Promise<Check[]>
}

export interface Verdict {
  readonly checks: readonly Check[]
  /** The claims of the receipt. Null without a right signature, which alone proves them. */
  readonly claims: JsonObject | null
}

/** The result of all checks; `open` if a needed check could not be made. */
export function judge(checks: readonly Check[]): 'right' | 'wrong' | 'open' {
  if (checks.some(({ isRight }) => isRight === false)) return 'wrong'
  return checks.some(({ isRight, isNeeded }) => isRight === null && isNeeded) ? 'open' : 'right'
}

/** Runs all checks in order. Stops without a right signature, because the content is then unproven. */
export async function checkReceipt(document: ReceiptDocument, trusted: Trusted): Promise<Verdict> {
  const receipt = await openStatement('receipt', document.receipt, trusted)
  const { claims } = receipt
  if (!claims) return { checks: [receipt.check], claims }
  const checks = [
    receipt.check,
    ...checkSums(claims),
    ...(await checkPlace(document, claims, trusted)),
  ]
  return { checks, claims }
}

export interface Statement {
  readonly check: Check
  /** Null without a right signature. */
  readonly claims: JsonObject | null
}

/** Verifies the type, the signature and the issuer of a signed statement. Never throws. */
export async function openStatement(
  kind: keyof typeof statementTypes,
  jws: string,
  { keys, issuer }: Omit<Trusted, 'roots'>,
): Promise<Statement> {
  const name = `Signature of the ${kind}`
  const refuse = (text: string): Statement => ({
    check: { name, isRight: false, text },
    claims: null,
  })
  try {
    const header = decodeProtectedHeader(jws)
    const { typ, kid, alg = '' } = header
    if (typ !== statementTypes[kind])
      return refuse(`Its type is ${String(typ)}, not ${statementTypes[kind]}.`)
    if ('crit' in header || 'b64' in header) return refuse('Its header names an extension.')
    const jwk = keys.find((key) => key.kid === kid)
    if (!jwk) return { check: { name, ...withoutKey(String(kid), keys) }, claims: null }
    const key = await importJWK(jwk, alg)
    const { payload } = await compactVerify(jws, key, { algorithms: ['RS256', 'ES256'] })
    const claims = parseObject(new TextDecoder().decode(payload))
    if (!claims) return refuse('Its payload is not a JSON object.')
    const iss = String(claims['iss'])
    if (issuer !== null && iss !== issuer) return refuse(`Its issuer is ${iss}, not ${issuer}.`)
    return { check: { name, isRight: true, text: `By ${iss}, key ${String(kid)}.` }, claims }
  } catch (error) {
    return refuse(`${error instanceof Error ? error.message : 'It is not a signed statement'}.`)
  }
}

// Retired keys leave the published set long before the receipts that they signed lose their use.
const withoutKey = (kid: string, { length }: readonly Key[]) =>
  ({
    isRight: null,
    isNeeded: true,
    text: `Its key ${kid} is not among the ${length} trusted keys: it is no longer published, or foreign. Use the keys that you kept.`,
  }) as const

function checkSums(claims: JsonObject): Check[] {
  try {
    return computeSums(claims)
  } catch (error) {
    const text = error instanceof Error ? error.message : 'a figure is not a number'
    return [{ name: 'Figures', isRight: false, text }]
  }
}

const placeName = 'Place in the day'

async function checkPlace(
  { proof, root }: ReceiptDocument,
  receipt: JsonObject,
  trusted: Trusted,
): Promise<Check[]> {
  const place = isObject(receipt['place']) ? receipt['place'] : null
  if (!proof || root === null) return [place ? lacksProof(place) : lacksRoot(trusted)]
  const isProvisional = place?.['provisional'] === true
  const kind = isProvisional ? 'provisional root' : 'root'
  const statement = await openStatement(kind, root, trusted)
  if (!statement.claims) return [statement.check]
  const document = { proof, receipt, day: statement.claims, place }
  if (isProvisional)
    return [
      statement.check,
      checkNames(document),
      checkCharge(document),
      await checkInclusion(document, 'Place in the charge'),
      lacksDay(document, trusted),
    ]
  return [
    statement.check,
    checkNames(document),
    await checkInclusion(document, placeName),
    ...((await trusted.roots?.compare(root, document.day)) ?? []),
  ]
}

// A receipt with a place was issued with a proof, so the file was cut.
const lacksProof = ({ day, leafIndex }: JsonObject): Check => ({
  name: placeName,
  isRight: false,
  text: `The receipt names place ${String(leafIndex)} of ${String(day)}, but its proof and root are missing. Get the receipt again.`,
})

const openUnless = (roots: TrustedRoots | null): false | null => (roots?.areNeeded ? false : null)

const lacksRoot = ({ roots }: Trusted): Check => ({
  name: placeName,
  isRight: openUnless(roots),
  text: 'The day has no root yet. Get the receipt again when its day is over.',
})

// The root of the day will replace a provisional one, so no kept root can be the same.
const lacksDay = ({ day }: Proved, { roots }: Trusted): Check => ({
  name: placeName,
  isRight: openUnless(roots),
  text: `The root is provisional: it covers the tickets of one charge. Get the receipt again when ${String(day['day'])} is over.`,
})

interface Proved {
  readonly proof: Proof
  /** The claims of both statements. */
  readonly receipt: JsonObject
  readonly day: JsonObject
  readonly place: JsonObject | null
}

const ticketOf = ({ receipt }: Proved): JsonObject =>
  isObject(receipt['ticket']) ? receipt['ticket'] : {}

/** Checks that both statements and the proof have the same app, day and tree. */
function checkNames(document: Proved): Check {
  const { proof, receipt, day, place } = document
  const isSamePlace =
    !place || (place['day'] === proof.day && place['leafIndex'] === proof.leafIndex)
  const isRight =
    receipt['iss'] === day['iss'] &&
    ticketOf(document)['clientId'] === day['clientId'] &&
    proof.day === day['day'] &&
    proof.treeSize === day['treeSize'] &&
    isSamePlace
  return {
    name: 'App and day',
    isRight,
    text: `App ${String(day['clientId'])}, ${String(day['day'])}, ticket ${proof.leafIndex + 1} of ${String(day['treeSize'])}.`,
  }
}

const checkCharge = (document: Proved): Check => ({
  name: 'Charge',
  isRight: ticketOf(document)['chargeId'] === document.day['chargeId'],
  text: `The root is that of charge ${String(document.day['chargeId'])}.`,
})

async function checkInclusion({ proof, receipt, day }: Proved, name: string): Promise<Check> {
  const leaf = toLeaf(receipt['ticket'])
  const root = leaf && (await rootOfInclusion(new TextEncoder().encode(leafText(leaf)), proof))
  const isRight = root !== null && root === day['rootHash']
  const steps = `${proof.inclusionPath.length} hashes`
  const text = isRight
    ? `${steps} lead from the ticket to the signed root ${root}.`
    : `${steps} do not lead from the ticket to the signed root ${String(day['rootHash'])}.`
  return { name, isRight, text }
}
