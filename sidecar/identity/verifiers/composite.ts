import type { Verifier } from './types.ts'

/** The first verifier whose kind of credential it is decides; a fault in one is a fault of all. */
export function compositeVerifier(verifiers: readonly Verifier[]): Verifier {
  return async (presented) => {
    for (const verify of verifiers) {
      const verdict = await verify(presented)
      if (verdict) return verdict
    }
    return null
  }
}
