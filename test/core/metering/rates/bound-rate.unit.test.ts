import { describe, expect, it } from 'vitest'
import { ethRate } from '../../../../core/lib/money.ts'
import { createBoundRate } from '../../../../core/metering/rates/bound-rate.ts'

const start = Date.parse('2026-03-10T12:00:00Z')

function world() {
  const state = { seconds: 0, observed: null as number | null, reads: 0, source: 'exchange' }
  const at = () => new Date(start + state.seconds * 1000)
  const boundRate = createBoundRate({
    findRate: async () => {
      state.reads++
      const { observed, source } = state
      if (observed === null) return null
      return {
        usdAttosPerEth: ethRate(3001n),
        observedAt: new Date(start + observed * 1000),
        source,
      }
    },
    now: at,
    maxAgeSeconds: 600,
    manualMaxAgeSeconds: 86_400,
    marginPercent: 10,
    graceSeconds: 3_600,
  })
  return { state, boundRate }
}

describe('the rate for bounds', () => {
  it('is read once a second, and at once while there is none', async () => {
    const { state, boundRate } = world()
    expect(await boundRate()).toBeNull()
    state.observed = 0
    expect(await boundRate()).toMatchObject({ usdAttosPerEth: 3001n, isRaised: false })
    await boundRate()
    expect(state.reads).toBe(2)
    state.seconds = 1
    await boundRate()
    expect(state.reads).toBe(3)
  })

  it('is raised once it prices no tickets any more, rounded up, and ends with its grace', async () => {
    const { state, boundRate } = world()
    state.observed = 0
    state.seconds = 600
    expect(await boundRate()).toMatchObject({ usdAttosPerEth: 3001n, isRaised: false })
    state.seconds = 602
    expect(await boundRate()).toMatchObject({ usdAttosPerEth: 3302n, isRaised: true })
    state.seconds = 4_200
    expect(await boundRate()).toMatchObject({ isRaised: true })
    state.seconds = 4_202
    expect(await boundRate()).toBeNull()
  })

  it('stays as it is for a day when an operator recorded it', async () => {
    const { state, boundRate } = world()
    Object.assign(state, { observed: 0, source: 'manual:desk', seconds: 86_400 })
    expect(await boundRate()).toMatchObject({ usdAttosPerEth: 3001n, isRaised: false })
    state.seconds = 86_402
    expect(await boundRate()).toMatchObject({ usdAttosPerEth: 3302n, isRaised: true })
    state.seconds = 90_002
    expect(await boundRate()).toBeNull()
  })
})
