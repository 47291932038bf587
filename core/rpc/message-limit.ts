import type { ServerInterceptingCallInterface } from '@grpc/grpc-js'

/**
 * Bounds the request messages of one call, in bytes. grpc-js 1.14 has one bound for a whole server, which must admit the
 * largest message of all; this sets it where the call keeps it, before its first byte is read. A call whose fields have
 * other names keeps the bound of the server: `test/core/rpc/admission.test.ts` shows that with a new version of grpc-js.
 */
export function limitMessages(call: ServerInterceptingCallInterface, maxBytes: number): void {
  const decoder: unknown = Reflect.get(call, 'decoder')
  if (typeof decoder !== 'object' || decoder === null) return
  Reflect.set(decoder, 'maxReadMessageLength', maxBytes)
  Reflect.set(call, 'maxReceiveMessageSize', maxBytes)
}
