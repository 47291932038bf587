import { int64, readMembers, object, text } from '../wire/go-json.ts'
import { readMaxPrice } from '../payment/price-ceiling.ts'
import type { MaxPrice } from '../payment/price-ceiling.ts'

/** The part of the webhook's body that the signer reads (docs/signer-answers.md, "Answer"). */
export type Answer = Readonly<{
  status: number
  reason: string
  /** Unix seconds; with 0 the signer calls the webhook for every payment. */
  expiry: bigint
  authId: string
  maxPrice: MaxPrice | undefined
}>

/** Decodes the answer as the signer does. Throws where the signer answers 500. */
export function decodeAnswer(body: string): Answer {
  const members = readMembers(body)
  const status = int64(members, 'status') ?? 0n
  const answer = {
    status: Number(status),
    reason: text(members, 'reason') ?? '',
    expiry: int64(members, 'expiry') ?? 0n,
    authId: text(members, 'auth_id') ?? '',
  }
  const ceiling = object(members, 'maxPrice')
  const maxPrice = ceiling === undefined ? undefined : readMaxPrice(ceiling)
  if (status <= 0n) throw new RangeError('the webhook answered without a positive status')
  return { ...answer, maxPrice }
}
