import { compactVerify, decodeProtectedHeader, importJWK } from 'jose'
import { type JsonObject, isObject, parseObject } from '../../../core/lib/json.ts'
import { toLeaf } from '../../../proto/receipts/leaf.ts'
import { statementTypes } from '../../../proto/receipts/statements.ts'
import { computeSums } from '../../../proto/receipts/sums.ts'
import type { Key, Proof, ReceiptDocument } from './document.ts'
import { rootOf } from './inclusion.ts'

/** Checks a receipt in the browser, by the same steps as `./tollgate receipt verify`. */

export interface Check {
  readonly name: string
  /** Null if the data for the check is missing. */
  readonly isRight: boolean | null
  /** True if nobody may call the receipt right without this check. */
  readonly isNeeded?: true
  readonly text: string
}

export interface Trusted {
  readonly keys: readonly Key[]
  /** Null accepts every issuer that the keys belong to. */
  readonly issuer: string | null
  /**
   * Returns the root that the service lists for an app's day; null if it lists none. Rejects with
   * the `status` of a refusal.
   */
  readonly findRoot: (clientId: string, day: string) => Promise<string | null>
}

export interface Verdict {
  readonly checks: readonly Check[]
  /** What the receipt says. Null without a right signature, because then nothing of it is proven. */
  readonly claims: JsonObject | null
}

/** What all checks together mean; `open` if one that is needed could not be made. */
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

interface Statement {
  readonly check: Check
  /** Null without a right signature. */
  readonly claims: JsonObject | null
}

async function openStatement(
  kind: keyof typeof statementTypes,
  jws: string,
  { keys, issuer }: Trusted,
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
    text: `Its key ${kid} is not among the ${length} trusted keys: it is no longer published, or foreign. Paste the keys that you kept.`,
  }) as const

const sumNames: Readonly<Record<string, string>> = {
  'network cost': 'Network cost',
  'retail cost': 'Price for the user',
  'platform fee': 'Platform fee',
  'owner charge': 'Charge to the owner',
  burns: 'Credits that paid',
}

function checkSums(claims: JsonObject): Check[] {
  try {
    return computeSums(claims).map((sum) => ({ ...sum, name: sumNames[sum.name] ?? sum.name }))
  } catch (error) {
    const text = error instanceof Error ? error.message : 'a figure is not a number'
    return [{ name: 'Figures', isRight: false, text }]
  }
}

async function checkPlace(
  { proof, root }: ReceiptDocument,
  receipt: JsonObject,
  trusted: Trusted,
): Promise<Check[]> {
  const place = isObject(receipt['place']) ? receipt['place'] : null
  const name = 'Place in the day'
  if (!proof || root === null)
    return [
      place
        ? { name, isRight: false, text: 'The receipt was issued with a proof, which is missing.' }
        : { name, isRight: null, text: 'No root yet. Get the receipt again when its day is over.' },
    ]
  const isProvisional = place?.['provisional'] === true
  const kind = isProvisional ? 'provisional root' : 'root'
  const statement = await openStatement(kind, root, trusted)
  if (!statement.claims) return [statement.check]
  const of = { proof, receipt, day: statement.claims, place }
  return [
    statement.check,
    checkNames(of),
    ...(isProvisional ? [checkCharge(of)] : []),
    await checkInclusion(of, isProvisional ? 'Place in the charge' : name),
    isProvisional
      ? {
          name,
          isRight: null,
          text: 'The root covers the tickets of one charge. Get the receipt again when its day is over.',
        }
      : await checkListed(of, root, trusted),
  ]
}

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
function checkNames(of: Proved): Check {
  const { proof, receipt, day, place } = of
  const isSamePlace =
    !place || (place['day'] === proof.day && place['leafIndex'] === proof.leafIndex)
  const isRight =
    receipt['iss'] === day['iss'] &&
    ticketOf(of)['clientId'] === day['clientId'] &&
    proof.day === day['day'] &&
    proof.treeSize === day['treeSize'] &&
    isSamePlace
  return {
    name: 'App and day',
    isRight,
    text: `App ${String(day['clientId'])}, ${String(day['day'])}, ticket ${proof.leafIndex + 1} of ${String(day['treeSize'])}.`,
  }
}

const checkCharge = (of: Proved): Check => ({
  name: 'Charge',
  isRight: ticketOf(of)['chargeId'] === of.day['chargeId'],
  text: `The root is that of charge ${String(of.day['chargeId'])}.`,
})

async function checkInclusion({ proof, receipt, day }: Proved, name: string): Promise<Check> {
  const leaf = toLeaf(receipt['ticket'])
  const root = leaf && (await rootOf(leaf, proof))
  const isRight = root !== null && root === day['rootHash']
  const steps = `${proof.inclusionPath.length} hashes`
  const text = isRight
    ? `${steps} lead from the ticket to the signed root ${root}.`
    : `${steps} do not lead from the ticket to the signed root ${String(day['rootHash'])}.`
  return { name, isRight, text }
}

/** Checks that the service shows everybody this root of the day. */
async function checkListed({ day }: Proved, root: string, trusted: Trusted): Promise<Check> {
  const name = 'Root that the service lists'
  let listed: string | null
  try {
    listed = await trusted.findRoot(String(day['clientId']), String(day['day']))
  } catch (error) {
    if (!isHidden(error)) {
      const text = `The list could not be read: ${error instanceof Error ? error.message : String(error)}`
      return { name, isRight: null, isNeeded: true, text }
    }
    listed = null
  }
  if (listed === null)
    return { name, isRight: null, text: 'The service lists no root of this app and day to you.' }
  const isRight = listed === root
  return {
    name,
    isRight,
    text: isRight
      ? 'The service lists the same root for this day.'
      : 'The service lists another root for this day.',
  }
}

// Roots of other apps are refused like those of unknown ones.
const isHidden = (error: unknown): boolean =>
  isObject(error) && (error['status'] === 403 || error['status'] === 404)
