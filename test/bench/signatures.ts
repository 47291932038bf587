import { generateKeyPairSync, sign } from 'node:crypto'
import { promisify } from 'node:util'

const signAsync = promisify(sign)
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
// Header and claims of a user token, in base64url.
const signingInput = Buffer.alloc(760, 'x')

/**
 * Signatures a second that the machine can make at all: of a text as long as a token's, with a key of the issuer's size, in
 * every thread that node has for it, and nothing else.
 */
export async function signatures(count: number): Promise<number> {
  const started = performance.now()
  let launched = 0
  const worker = async (): Promise<void> => {
    while (launched++ < count) await signAsync('RSA-SHA256', signingInput, privateKey)
  }
  await Promise.all(Array.from({ length: 64 }, worker))
  return count / ((performance.now() - started) / 1000)
}
