import { array, assert, integer, property, record, tuple } from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Move, aheadAt } from '../../../core/shared/clocks/clocks.ts'

/** Moves in order: each is later, and further ahead, than the previous one. */
const movesOf = (steps: readonly [number, number][]): Move[] => {
  let [since, aheadMs] = [0, 0]
  return steps.map(([wait, step]) => ({
    since: new Date((since += wait)),
    aheadMs: (aheadMs += step),
  }))
}

const steps = array(tuple(integer({ min: 1, max: 50 }), integer({ min: 1, max: 50 })), {
  maxLength: 8,
})
const time = integer({ min: 0, max: 400 })

describe('aheadAt', () => {
  it('ignores moves after the booking', () => {
    assert(
      property(steps, record({ signedMs: time, bookedMs: time }), (all, times) => {
        const moves = movesOf(all)
        const known = moves.filter(({ since }) => since.getTime() < times.bookedMs)
        expect(aheadAt(moves, times)).toBe(aheadAt(known, times))
      }),
    )
  })

  it('never makes the clock run backwards', () => {
    assert(
      property(steps, time, time, (all, one, other) => {
        const moves = movesOf(all)
        const shown = (ms: number): number => ms + aheadAt(moves, { signedMs: ms, bookedMs: ms })
        const [first, last] = [Math.min(one, other), Math.max(one, other)]
        expect(shown(first)).toBeLessThanOrEqual(shown(last))
      }),
    )
  })
})
