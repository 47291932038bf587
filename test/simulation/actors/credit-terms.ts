import { usdAttos } from '../../../core/lib/money.ts'
import type { Scheduler } from '../scheduler.ts'
import type { CoreReplica } from './core.ts'
import { type World, attosPerMicro } from './world.ts'

interface CreditTermsDeps {
  readonly scheduler: Scheduler
  readonly world: World
  readonly withCore: (work: (core: CoreReplica) => Promise<void>) => void
}

/** What decides the ceilings of users: their plan's setting, their cards, and the app's mode. */
export function createCreditTerms({ scheduler, world, withCore }: CreditTermsDeps) {
  const settings = world.ceilings.map((micros) => ({ micros, lost: 0 }))
  let otherModes = 0

  /** Sends the ceiling that applies now. Does nothing for a user without a credit line. */
  function apply(user: number): void {
    const setting = settings[user]
    if (!setting || setting.micros === 0) return
    const amount = usdAttos(otherModes > 0 ? 0n : BigInt(setting.micros) * attosPerMicro)
    withCore((core) => core.limitDebt(world.userOf(user), setting.lost > 0 ? null : amount))
  }

  const applyAll = (): void => settings.forEach((_, user) => apply(user))

  /** Takes the card away, for `ms` or for the rest of the history. */
  function loseCard(user: number, ms: number | null): void {
    const setting = settings[user]
    if (!setting) return
    setting.lost += 1
    apply(user)
    if (ms === null) return
    scheduler.schedule(null, ms, () => {
      setting.lost -= 1
      apply(user)
    })
  }

  function setCeiling(user: number, micros: number): void {
    const setting = settings[user]
    if (!setting || setting.micros === 0) return
    setting.micros = micros
    apply(user)
  }

  function changeMode(ms: number): void {
    otherModes += 1
    applyAll()
    scheduler.schedule(null, ms, () => {
      otherModes -= 1
      applyAll()
    })
  }

  return { loseCard, setCeiling, changeMode }
}
