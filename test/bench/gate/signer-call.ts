/**
 * Returns the signer's request for a decision about `credential`, with the body of its first call.
 */
export function requestOf(secret: string, credential: string): string {
  const body = bodyOf(credential)
  return (
    'POST /authorize HTTP/1.1\r\nHost: 127.0.0.1:8090\r\nUser-Agent: Go-http-client/1.1\r\n' +
    `Content-Length: ${Buffer.byteLength(body)}\r\nAuthorization: Bearer ${secret}\r\n` +
    `Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n${body}`
  )
}

/** Returns the first call of a live session as the signer writes it (docs/signer-webhook.md). */
export const bodyOf = (credential: string): string =>
  JSON.stringify({
    headers: {
      Accept: ['application/json'],
      'Accept-Encoding': ['identity'],
      Authorization: [`Bearer ${credential}`],
      Connection: ['close'],
      'Content-Length': ['1184'],
      'Content-Type': ['application/json'],
      'User-Agent': ['livepeer-python-gateway/0.1'],
    },
    state: {
      StateID: '9f86d081',
      PMSessionID: '0x2b1f6c0e5d7a49a8b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7081920',
      LastUpdate: '2026-09-14T10:15:30.123456789Z',
      OrchestratorAddress: '0x5be44e23041e93cdf9bcd5a0968524e104e38ae1',
      App: 'acme/echo',
      AuthExpiry: 0,
      SenderNonce: 1,
      Balance: '49999999880000',
      InitialPricePerUnit: 12_000,
      InitialPixelsPerUnit: 1,
      Type: 'live',
      SequenceNumber: 0,
      AuthID: '',
    },
  })
