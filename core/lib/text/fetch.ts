export interface FetchBounds {
  readonly timeoutMs: number
  readonly maxBytes: number
}

/** The JSON text at an address that the operator configured. Follows no redirect. Rejects with the reason otherwise. */
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
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of response.body ?? []) {
    size += chunk.length
    if (size > maxBytes) throw new Error(`answered more than ${maxBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}
