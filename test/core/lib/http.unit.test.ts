import { describe, expect, it } from 'vitest'
import { listenError, mergeParts } from '../../../core/lib/http.ts'

describe('mergeParts', () => {
  it('keeps the worse state of a part that several processes have', () => {
    expect(
      mergeParts([
        { core: 'unavailable', redis: 'ok' },
        { core: 'degraded', redis: 'degraded', database: 'ok' },
      ]),
    ).toEqual({ core: 'unavailable', redis: 'degraded', database: 'ok' })
  })
})

describe('listenError', () => {
  const at = { host: '192.0.2.1', port: 9464, setting: 'ADMIN_PORT' }
  it.each([
    ['EADDRINUSE', 'port 9464 on 192.0.2.1 is already in use; set ADMIN_PORT to another port'],
    [
      'EADDRNOTAVAIL',
      'port 9464 on 192.0.2.1 cannot be opened (EADDRNOTAVAIL); 192.0.2.1 is not an address of this machine',
    ],
  ])('names the cure of %s', (code, message) => {
    expect(listenError(Object.assign(new Error('listen'), { code }), at).message).toBe(message)
  })
})
