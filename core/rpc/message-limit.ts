import { type OpenedStream, refuseStream, toRpcPath } from './streams.ts'

/** A flag and the length of the following message. */
const prefixBytes = 5

/**
 * Limits the request messages of each RPC separately, because grpc-js has only one limit per
 * server, which must admit the largest message. `maxBytesOf` returns the maximum message size of an
 * RPC in bytes. A call is rejected with RESOURCE_EXHAUSTED by the announced length, before the
 * first byte of the message is kept.
 */
export function limitMessages(opened: OpenedStream, maxBytesOf: (path: string) => number): void {
  const { stream } = opened
  const maxBytes = maxBytesOf(toRpcPath(opened))
  const prefix = Buffer.alloc(prefixBytes)
  let filled = 0
  let left = 0

  /** Reads a prefix, or skips the remainder of a message. Returns the number of bytes consumed. */
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
