export interface FetchBounds {
  readonly timeoutMs: number
  readonly maxBytes: number
}

/**
 * Fetches JSON text from an address that the operator configured. Follows no redirect. Rejects with
 * the reason on failure.
 */
export async function fetchText(
  url: string,
  { timeoutMs, maxBytes }: FetchBounds,
): Promise<string> {
  const response = await fetch(url, {
    signal: AbortSignal.timeout(timeoutMs),
    redirect: 'error',
    headers: { accept: 'application/json' },
  })
  if (!response.ok) {
    await response.body?.cancel()
    throw new Error(`answered ${response.status}`)
  }
  const text = await readBounded(response.body, maxBytes)
  if (text === null) throw new Error(`answered more than ${maxBytes} bytes`)
  return text
}

/** The text of a body; null if it exceeds `maxBytes`. The remainder is not read. */
export async function readBounded(
  body: AsyncIterable<Uint8Array> | null,
  maxBytes: number,
): Promise<string | null> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of body ?? []) {
    size += chunk.length
    if (size > maxBytes) return null
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

/**
 * The reason why fetch failed, as a code or a line: fetch wraps the connection's error. Contains no
 * text from the host.
 */
export function toReason(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  if (!(cause instanceof Error)) return 'unknown failure'
  return 'code' in cause && typeof cause.code === 'string' ? cause.code : cause.message
}
