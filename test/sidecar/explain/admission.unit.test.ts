import { describe, expect, it } from 'vitest'
import { createAdmission } from '../../../sidecar/explain/admission.ts'

const second = 1_789_380_930_000

describe('a flood of refusals', () => {
  it('is recorded up to four fifths of the limit, with room for rare kinds', () => {
    const { admit } = createAdmission({ perSecond: 50 })
    const flood = Array.from({ length: 1_000 }, (_, i) =>
      admit('invalid_api_key', '', second + (i % 1_000)),
    )
    expect(flood.filter(Boolean)).toHaveLength(40)
    const seldom = [1, 2, 3].map(() => admit('user_inactive', 'acme', second))
    expect(seldom).toEqual([true, true, false])
    const ofAnother = [1, 2, 3].map(() => admit('user_inactive', 'other', second))
    expect(ofAnother).toEqual([true, true, false])
  })

  it('is never recorded beyond the limit, even with many kinds', () => {
    const { admit } = createAdmission({ perSecond: 50 })
    const admitted = Array.from({ length: 1_000 }, (_, i) => admit('any', `app ${i}`, second))
    expect(admitted.filter(Boolean)).toHaveLength(50)
  })

  it('is recorded again in the next second', () => {
    const { admit } = createAdmission({ perSecond: 1 })
    expect([admit('a', '', second), admit('a', '', second + 999)]).toEqual([true, false])
    expect(admit('a', '', second + 1_000)).toBe(true)
  })

  it('is not recorded at all with a limit of 0', () => {
    expect(createAdmission({ perSecond: 0 }).admit('a', '', second)).toBe(false)
  })
})
