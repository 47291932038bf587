import { assert, jsonValue, property } from 'fast-check'
import { describe, expect, it } from 'vitest'
import { rewritten } from '../../../../core/metering/redrive/rewrite.ts'

const write = (text: string, decision: Parameters<typeof rewritten>[1] = {}) =>
  rewritten(Buffer.from(text), decision)?.toString()

describe('rewriting an event for a decision', () => {
  it('keeps every number as it was written', () => {
    const data = '{"a":9007199254740993,"b":1e-9,"c":-0,"d":1.10,"e":[1E5,null,true,"\\u0000é"]}'
    expect(write(`{"id":"x","data":${data}}`)).toBe(`{"id":"x","data":${data}}`)
  })

  it('sets the subject and the id, even if they are missing', () => {
    expect(
      write('{"data":{"auth_id":"a:b","n":1.0},"id":"x"}', { authId: 'c:d', eventId: 'y' }),
    ).toBe('{"data":{"auth_id":"c:d","n":1.0},"id":"y"}')
    expect(write('{"data":{}}', { authId: 'c:d', eventId: 'y' })).toBe(
      '{"data":{"auth_id":"c:d"},"id":"y"}',
    )
  })

  it('rejects bytes that are not an event', () => {
    for (const text of ['', '[]', '{', '{"data":1}', '{"data":{"a":1,"a":2}}'])
      expect(write(text)).toBeUndefined()
  })

  it('writes text that JSON.parse reads the same', () => {
    assert(
      property(jsonValue(), (value) => {
        const text = JSON.stringify({ data: { value } })
        expect(JSON.parse(write(text) ?? '')).toEqual(JSON.parse(text))
      }),
    )
  })
})
