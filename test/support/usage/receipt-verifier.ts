import { createHash } from 'node:crypto'
import { type JSONWebKeySet, compactVerify, createLocalJWKSet } from 'jose'

/**
 * Checks a receipt as an outsider would from docs/receipts.md alone: it shares no code with the
 * service. Throws if the receipt is invalid.
 */
export async function verifyReceipt(document: unknown, jwks: unknown): Promise<void> {
  const { receipt, proof, root, provisional } = document as {
    receipt: string
    proof: { day: string; leafIndex: number; treeSize: number; inclusionPath: string[] }
    root: string
    provisional: boolean
  }
  const claims = await open(receipt, 'tollgate-receipt+jwt', jwks)
  const kind = provisional ? 'provisional-root' : 'root'
  const day = await open(root, `tollgate-receipt-${kind}+jwt`, jwks)
  const ticket = claims['ticket'] as Record<string, string>

  const scaled = (text = '0'): bigint => {
    const [whole = '', fraction = ''] = text.split('.')
    return BigInt(whole + fraction.padEnd(18, '0'))
  }
  const one = 10n ** 18n
  const exact = BigInt(ticket['feeWei'] ?? '') * scaled(ticket['usdPerEth'])
  const { multiple } = claims['rule'] as { multiple: string }
  same(exact / one, scaled(ticket['networkCostUsd']))
  same((exact * scaled(multiple)) / one / one, scaled(ticket['retailCostUsd']))

  const names =
    'clientId eventId endUserId sessionId sequenceNumber gatewayRequestId manifestId pipeline modelId signedAt receivedAt ' +
    'feeWei rateSource rateObservedAt usdPerEth networkCostUsd termsId retailCostUsd platformFeeUsd platformFeeWei chargeId'
  const values = names.split(' ').map((name) => ticket[name])
  const sha256 = (...parts: (string | Uint8Array)[]): Buffer =>
    createHash('sha256')
      .update(Buffer.concat(parts.map((part) => Buffer.from(part))))
      .digest()
  let hash = sha256(Uint8Array.of(0), JSON.stringify(['tollgate-ticket-1', ...values]))
  // From the top down: the half of the tree that has the leaf, at each level.
  const sides: ('left' | 'right')[] = []
  for (let [index, size] = [proof.leafIndex, proof.treeSize]; size > 1;) {
    let half = 1
    while (half * 2 < size) half *= 2
    sides.unshift(index < half ? 'left' : 'right')
    ;[index, size] = index < half ? [index, half] : [index - half, size - half]
  }
  same(sides.length, proof.inclusionPath.length)
  for (const [i, side] of sides.entries()) {
    const sibling = Buffer.from(proof.inclusionPath[i] ?? '', 'hex')
    hash =
      side === 'left'
        ? sha256(Uint8Array.of(1), hash, sibling)
        : sha256(Uint8Array.of(1), sibling, hash)
  }
  same(hash.toString('hex'), day['rootHash'])
  same(proof.treeSize, day['treeSize'])
  same(ticket['clientId'], day['clientId'])
  same(proof.day, day['day'])
}

async function open(jws: string, typ: string, jwks: unknown): Promise<Record<string, unknown>> {
  const keys = createLocalJWKSet(jwks as JSONWebKeySet)
  const { payload, protectedHeader } = await compactVerify(jws, keys)
  same(protectedHeader.typ, typ)
  return JSON.parse(Buffer.from(payload).toString('utf8')) as Record<string, unknown>
}

function same(a: unknown, b: unknown): void {
  if (a !== b) throw new Error(`${String(a)} is not ${String(b)}`)
}
