import { generateKeyPairSync, sign } from 'node:crypto'
import { promisify } from 'node:util'

const signAsync = promisify(sign)
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
// As long as the header and claims of a user token in base64url.
const signingInput = Buffer.alloc(760, 'x')

/**
 * Returns the machine's maximum rate of signatures per second: over a text as long as a token's,
 * with a key of the issuer's size, in all threads that node uses for signatures, without other
 * work.
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
