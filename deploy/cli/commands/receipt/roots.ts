import { hash } from 'node:crypto'
import {
  type Check,
  type Trusted,
  type TrustedRoots,
  openStatement,
} from '../../../../proto/receipts/check.ts'
import type { RootDocument } from '../../../../proto/receipts/document.ts'

type Signers = Omit<Trusted, 'roots'>

/** Compares with kept roots: the root of the day must be among them, and they must form a chain. */
export const compareKept =
  (roots: readonly RootDocument[], signers: Signers): TrustedRoots['compare'] =>
  async (root, day) => {
    const isKept = roots.some(({ statement }) => statement === root)
    const kept = {
      name: 'Kept root',
      isRight: isKept,
      text: `The root of ${String(day['day'])} is ${isKept ? '' : 'not '}among the ${roots.length} kept roots.`,
    }
    return [kept, await checkChain(roots, String(day['clientId']), signers)]
  }

async function checkChain(
  roots: readonly RootDocument[],
  clientId: string,
  signers: Signers,
): Promise<Check> {
  const name = 'Chain of roots'
  let previous: string | null = null
  for (const { day, statement } of roots) {
    const { claims, check } = await openStatement('root', statement, signers)
    if (!claims) return { ...check, name, text: `${day}: ${check.text}` }
    if (claims['clientId'] !== clientId || claims['day'] !== day)
      return { name, isRight: false, text: `${day}: It is a root of another app or day.` }
    if (previous !== null && claims['previous'] !== previous)
      return { name, isRight: false, text: `${day}: It does not follow the root before it.` }
    previous = hash('sha256', statement, 'hex')
  }
  return { name, isRight: true, text: `${roots.length} roots, each names the one before.` }
}
