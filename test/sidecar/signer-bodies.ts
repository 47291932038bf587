/** The first call of a live session with an API key (docs/signer-webhook.md, "Request"). */
export function firstCall(overrides: { key?: string; headers?: object; state?: object } = {}) {
  const { key = 'sk_live_7Qp2mV9aXr4LtB8cYwZ0', headers = {}, state = {} } = overrides
  return {
    headers: {
      Accept: ['application/json'],
      'Accept-Encoding': ['identity'],
      Authorization: [`Bearer ${key}`],
      Connection: ['close'],
      'Content-Length': ['1184'],
      'Content-Type': ['application/json'],
      'User-Agent': ['livepeer-python-gateway/0.1'],
      ...headers,
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
      ...state,
    },
  }
}

/** Body (2): the 12th call of an lv2v session with a JWT, by a signer in UTC+2. */
export function laterCall(token: string, state: object = {}) {
  return {
    headers: {
      'Accept-Encoding': ['gzip'],
      Authorization: [`Bearer ${token}`],
      'Content-Length': ['2309'],
      'Content-Type': ['application/json'],
      'User-Agent': ['Go-http-client/1.1'],
      'X-Forwarded-For': ['203.0.113.7'],
      'X-Request-Id': ['gw-8842'],
    },
    state: {
      StateID: '4e07408b',
      PMSessionID: '0x9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab',
      LastUpdate: '2026-09-14T12:16:17.123456789+02:00',
      OrchestratorAddress: '0x847791cbf03be716a7fe9dc8c9affe17bd49ae5e',
      App: '',
      AuthExpiry: 1_789_380_958,
      SenderNonce: 23,
      Balance: '6000/7',
      InitialPricePerUnit: 300,
      InitialPixelsPerUnit: 7,
      Type: 'lv2v',
      SequenceNumber: 11,
      AuthID: 'tenant_a:user_42',
      ...state,
    },
  }
}

/** Body (3): the third call of a fixed session by an odd client. */
export function oddCall(authorization: string[]) {
  return {
    headers: {
      Accept: ['*/*'],
      Authorization: authorization,
      'Content-Length': ['1040'],
      'Content-Type': ['application/json'],
      Cookie: ['a=1', 'b=2'],
      'Signer-Auth-Id': ['tenant_evil:admin'],
      'User-Agent': ['curl/8.5.0'],
      'X-Empty': [''],
      'X-Html': ['<&>'],
    },
    state: {
      StateID: 'ef2d127d',
      PMSessionID: '0xe7f6c011776e8db7cd330b54174fd76f7d0216b612387a5ffcfb81e6f0919683',
      LastUpdate: '2026-09-14T10:16:30.123456789Z',
      OrchestratorAddress: '0x5be44e23041e93cdf9bcd5a0968524e104e38ae1',
      App: 'acme/img2img',
      AuthExpiry: 0,
      SenderNonce: 3,
      Balance: '0',
      InitialPricePerUnit: 2_500_000_000_000,
      InitialPixelsPerUnit: 1,
      Type: 'fixed',
      SequenceNumber: 2,
      AuthID: 'tenant_a:user_42',
    },
  }
}
