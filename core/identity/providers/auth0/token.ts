import type { HttpAnswer } from './http.ts'

export interface AccessToken {
  readonly text: string
  readonly lifetimeSeconds: number
}

/** The token, or the failed response. */
export type TokenAnswer =
  { readonly text: string } | { readonly text: null; readonly answer: HttpAnswer }

const aheadSeconds = 60

/**
 * Caches an access token until shortly before it expires. Concurrent callers share one request.
 * After a failure the next caller requests a token again.
 */
export function createTokenCache(fetchToken: () => Promise<AccessToken | HttpAnswer>) {
  let token: { readonly text: string; readonly until: number } | null = null
  let fetching: Promise<TokenAnswer> | null = null

  async function renew(): Promise<TokenAnswer> {
    const next = await fetchToken()
    if (!('text' in next)) return { text: null, answer: next }
    const { text, lifetimeSeconds } = next
    const usableSeconds = Math.max(lifetimeSeconds - aheadSeconds, lifetimeSeconds / 2)
    token = { text, until: performance.now() + usableSeconds * 1000 }
    return { text }
  }

  async function get(): Promise<TokenAnswer> {
    if (token && performance.now() < token.until) return token
    return (fetching ??= renew().finally(() => {
      fetching = null
    }))
  }

  /** Discards a refused token, unless it was replaced in the meantime. */
  function discard(refused: string): void {
    if (token?.text === refused) token = null
  }

  return { get, discard }
}
