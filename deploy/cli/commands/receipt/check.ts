import { hash } from 'node:crypto'
import { compactVerify, decodeProtectedHeader, importJWK } from 'jose'
import { hashOfLeaf } from '../../../../core/books/receipts/leaf.ts'
import { isUnderstood } from '../../../../core/lib/foreign-tokens/form.ts'
import { type JsonObject, isObject, parseObject } from '../../../../core/lib/json.ts'
import { rootOfInclusion } from '../../../../core/books/receipts/merkle.ts'
import { toLeaf } from '../../../../proto/receipts/leaf.ts'
import { statementTypes } from '../../../../proto/receipts/statements.ts'
import { computeSums } from '../../../../proto/receipts/sums.ts'
import type { Jwk, ReceiptDocument, RootDocument } from './document.ts'

/** Checks a receipt offline, with keys and stored roots that the caller trusts. */

export interface Check {
  readonly name: string
  /** Null if the data for the check is missing. */
  readonly isRight: boolean | null
  readonly text: string
}

export interface Trusted {
  readonly keys: readonly Jwk[]
  /** Null to accept any issuer that the keys belong to. */
  readonly issuer: string | null
  readonly roots: readonly RootDocument[] | null
}

const types = statementTypes
const algorithms = ['RS256', 'ES256']

/** Runs all checks in order. Stops after a bad signature, because the content is then unproven. */
export async function checkReceipt(document: ReceiptDocument, trusted: Trusted): Promise<Check[]> {
  const receipt = await openStatement('receipt', document.receipt, trusted)
  if (!receipt.claims) return [receipt.check]
  return [
    receipt.check,
    ...checkSums(receipt.claims),
    ...(await checkProof(document, receipt.claims, trusted)),
  ]
}

interface Statement {
  readonly check: Check
  /** Null when the signature is invalid. */
  readonly claims: JsonObject | null
}

async function openStatement(
  kind: keyof typeof types,
  jws: string,
  { keys, issuer }: Trusted,
): Promise<Statement> {
  const name = `signature of the ${kind}`
  const refuse = (text: string): Statement => ({
    check: { name, isRight: false, text },
    claims: null,
  })
  try {
    const header = decodeProtectedHeader(jws)
    const { typ, kid, alg = '' } = header
    if (typ !== types[kind]) return refuse(`its type is ${String(typ)}, not ${types[kind]}`)
    if (!isUnderstood({ header })) return refuse('its header names an extension (crit or b64)')
    const jwk = keys.find((key) => key.kid === kid)
    if (!jwk) return refuse(`the key ${String(kid)} is not among the ${keys.length} trusted ones`)
    const key = await importJWK(jwk, alg)
    const { payload } = await compactVerify(jws, key, { algorithms })
    const claims = parseObject(Buffer.from(payload).toString('utf8'))
    if (!claims) return refuse('its payload is not a JSON object')
    const iss = String(claims['iss'])
    if (issuer !== null && iss !== issuer) return refuse(`its issuer is ${iss}, not ${issuer}`)
    return { check: { name, isRight: true, text: `by ${iss}, key ${kid}` }, claims }
  } catch (error) {
    return refuse(error instanceof Error ? error.message : 'it is not a JWS')
  }
}

function checkSums(claims: JsonObject): Check[] {
  try {
    return computeSums(claims)
  } catch (error) {
    const text = error instanceof Error ? error.message : 'a figure is not a number'
    return [{ name: 'figures', isRight: false, text }]
  }
}

async function checkProof(
  { proof, root }: ReceiptDocument,
  claims: JsonObject,
  trusted: Trusted,
): Promise<Check[]> {
  if (!proof || root === null) {
    if (isObject(claims['place'])) return [lacksProof(claims['place'])]
    const text = 'the receipt has no root yet: get it again after the day has its root'
    return [{ name: 'place in the day', isRight: trusted.roots ? false : null, text }]
  }
  const isProvisional = isObject(claims['place']) && claims['place']['provisional'] === true
  const statement = await openStatement(isProvisional ? 'provisional root' : 'root', root, trusted)
  if (!statement.claims) return [statement.check]
  const of = { proof, root, receipt: claims, day: statement.claims }
  if (isProvisional) return [statement.check, ...checkCharge(of, trusted)]
  return [
    statement.check,
    checkNames(of),
    checkInclusion(of, 'place in the day'),
    ...(trusted.roots ? await checkRoots(of, trusted.roots, trusted) : []),
  ]
}

/** A receipt with a place was issued with a proof, so the file is truncated. */
const lacksProof = ({ day, leafIndex }: JsonObject): Check => ({
  name: 'place in the day',
  isRight: false,
  text: `the receipt names place ${String(leafIndex)} of ${String(day)}, but the file lacks its proof and root: get the receipt again`,
})

interface Proved {
  readonly proof: NonNullable<ReceiptDocument['proof']>
  readonly root: string
  /** The claims of both statements. */
  readonly receipt: JsonObject
  readonly day: JsonObject
}

/** Checks that both statements and the proof have the same app, day and tree. */
function checkNames({ proof, receipt, day }: Proved): Check {
  const ticket = isObject(receipt['ticket']) ? receipt['ticket'] : {}
  const place = isObject(receipt['place']) ? receipt['place'] : null
  const isRight =
    receipt['iss'] === day['iss'] &&
    ticket['clientId'] === day['clientId'] &&
    proof.day === day['day'] &&
    proof.treeSize === day['treeSize'] &&
    (!place || (place['day'] === proof.day && place['leafIndex'] === proof.leafIndex))
  const text = `app ${String(day['clientId'])}, ${String(day['day'])}, ticket ${proof.leafIndex + 1} of ${String(day['treeSize'])}`
  return { name: 'app and day', isRight, text }
}

/**
 * Checks a provisional root: the ticket's place among those of its charge. The day's root will
 * replace it, so no stored root can match.
 */
function checkCharge(of: Proved, { roots }: Trusted): Check[] {
  const { receipt, day } = of
  const ticket = isObject(receipt['ticket']) ? receipt['ticket'] : {}
  const id = String(day['chargeId'])
  return [
    checkNames(of),
    { name: 'charge', isRight: ticket['chargeId'] === id, text: `the root is of charge ${id}` },
    checkInclusion(of, 'place in the charge'),
    {
      name: 'place in the day',
      isRight: roots ? false : null,
      text: `the root is provisional: get the receipt again when ${String(day['day'])} is over`,
    },
  ]
}

function checkInclusion({ proof, receipt, day }: Proved, name: string): Check {
  const { leafIndex: index, treeSize: size, inclusionPath: path } = proof
  const leaf = toLeaf(receipt['ticket'])
  const root = leaf && rootOfInclusion({ leaf: hashOfLeaf(leaf), index, size, path })
  return {
    name,
    isRight: root !== null && root.toString('hex') === day['rootHash'],
    text: `${path.length} hashes lead from the ticket to the root ${String(day['rootHash'])}`,
  }
}

/** Checks that the root is among the stored ones, and that these form a chain. */
async function checkRoots(
  { root, day }: Proved,
  roots: readonly RootDocument[],
  trusted: Trusted,
): Promise<Check[]> {
  const same = roots.find((one) => one.statement === root)
  const ofDay = {
    name: 'kept root',
    isRight: same !== undefined,
    text: `the root of ${String(day['day'])} is ${same ? '' : 'not '}among the ${roots.length} kept roots`,
  }
  return [ofDay, await checkChain(roots, String(day['clientId']), trusted)]
}

async function checkChain(
  roots: readonly RootDocument[],
  clientId: string,
  trusted: Trusted,
): Promise<Check> {
  const name = 'chain of roots'
  let previous: string | null = null
  for (const { day, statement } of roots) {
    const { claims, check } = await openStatement('root', statement, trusted)
    if (!claims) return { ...check, name, text: `${day}: ${check.text}` }
    if (claims['clientId'] !== clientId || claims['day'] !== day)
      return { name, isRight: false, text: `${day}: it is a root of another app or day` }
    if (previous !== null && claims['previous'] !== previous)
      return { name, isRight: false, text: `${day}: it does not follow the root before it` }
    previous = hash('sha256', statement, 'hex')
  }
  return { name, isRight: true, text: `${roots.length} roots, each names the one before` }
}
