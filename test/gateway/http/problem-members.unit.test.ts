import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { DomainError, readMembers, membersText } from '../../../proto/errors.ts'
import { renderError } from '../../../gateway/http/errors.ts'

const bodyOf = (error: DomainError, wire: 'problem' | 'oauth') =>
  renderError({ error, wire, correlationId: 'c', publicUrl: 'https://example.com' }).body

describe('members of a problem document', () => {
  it('survive an ASCII trailer unchanged', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (members) => {
        const text = membersText(members)
        expect(text).toMatch(/^[\x20-\x7e]*$/)
        expect(readMembers(text)).toEqual(JSON.parse(JSON.stringify(members)))
      }),
    )
    expect(membersText({ name: 'Größe 𝄞\u007f' })).toBe(
      '{"name":"Gr\\u00f6\\u00dfe \\ud834\\udd1e\\u007f"}',
    )
  })

  it.each([[undefined], [''], [null], [5], ['null'], ['5']])('are undefined for %j', (text) => {
    expect(readMembers(text)).toBeUndefined()
  })

  it('never replace the standard ones, and are not in an OAuth error', () => {
    const members = { activeSubscribers: 3, status: 200, code: 'other', correlation_id: 'x' }
    const error = new DomainError('CONFLICT', 'no', { members })
    expect(bodyOf(error, 'problem')).toMatchObject({
      activeSubscribers: 3,
      status: 409,
      code: 'conflict',
      correlation_id: 'c',
    })
    expect(Object.keys(bodyOf(error, 'oauth'))).toEqual([
      'error',
      'error_description',
      'correlation_id',
    ])
  })
})
