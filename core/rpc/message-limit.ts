import { type OpenedStream, refuseStream, rpcPathOf } from './streams.ts'

/** A flag and the length of the message that follows. */
const prefixBytes = 5

/**
 * Bounds the request messages of each RPC by its own measure, where grpc-js has one for a whole server, which must admit
 * the largest message of all. `maxBytesOf` returns the longest message of an RPC, in bytes. A call is refused with
 * RESOURCE_EXHAUSTED by the length that a message announces, before its first byte is kept.
 */
export function limitMessages(opened: OpenedStream, maxBytesOf: (path: string) => number): void {
  const { stream } = opened
  const maxBytes = maxBytesOf(rpcPathOf(opened))
  const prefix = Buffer.alloc(prefixBytes)
  let filled = 0
  let left = 0

  /** Reads a prefix, or skips what is left of a message. Returns how many bytes of the chunk that took. */
  function take(chunk: Buffer, from: number): number {
    if (left > 0) {
      const skipped = Math.min(left, chunk.length - from)
      left -= skipped
      return skipped
    }
    const copied = chunk.copy(prefix, filled, from)
    filled = (filled + copied) % prefixBytes
    if (filled === 0) left = prefix.readUInt32BE(1)
    return copied
  }

  stream.on('data', (chunk: Buffer) => {
    for (let from = 0; from < chunk.length;) {
      from += take(chunk, from)
      if (left > maxBytes) return refuseStream(stream, `a message may have ${maxBytes} bytes here`)
    }
  })
}
