import { usdAttos } from '../../../core/lib/money.ts'
import type { Broker } from './broker.ts'
import type { Clients } from './clients.ts'
import type { CoreReplica } from './core.ts'
import type { Database } from './database.ts'
import type { Fleet } from './fleet.ts'
import type { History } from '../history.ts'
import type { Network } from './network.ts'
import type { Action, Step } from '../plan.ts'
import type { Scheduler } from '../scheduler.ts'
import { createCreditTerms } from './credit-terms.ts'
import { type World, attosPerMicro } from './world.ts'

export interface StepsDeps {
  readonly scheduler: Scheduler
  readonly network: Network
  readonly database: Database
  readonly broker: Broker
  readonly fleet: Fleet
  readonly clients: Clients
  readonly world: World
  readonly history: History
}

type Of<Kind extends Action['kind']> = Extract<Step, { kind: Kind }>
type Performers = { readonly [Kind in Action['kind']]: (step: Of<Kind>) => void }

/** Performs the steps of a plan. */
export function createSteps({
  scheduler,
  network,
  database,
  broker,
  fleet,
  clients,
  world,
  history,
}: StepsDeps) {
  const until = ({ ms }: { ms: number }): number => scheduler.now() + ms
  const note = (text: string): void => history.note(scheduler.now(), text)
  const linkOf = (sidecar: number, core: number | null) => ({
    from: fleet.sidecar(sidecar)?.process ?? null,
    to: core === null ? null : (fleet.cores[core]?.process ?? null),
  })

  const withCore = (work: (core: CoreReplica) => Promise<void>): void => {
    const core = fleet.liveCore()
    if (core) scheduler.schedule(core.process, 1, () => void work(core))
  }

  const credit = createCreditTerms({ scheduler, world, withCore })

  const performers: Performers = {
    call: (step) => clients.call({ ...step, isUnsigned: false }),
    'unsigned call': (step) => clients.call({ ...step, isUnsigned: true }),
    kill: ({ role, index, ms }) => fleet.kill(role, index, ms),
    freeze: ({ role, index, ms }) => fleet.freeze(role, index, ms),
    suspend: ({ role, index, ms }) => fleet.suspend(role, index, ms),
    stop: ({ index, ms }) => fleet.stop(index, ms),
    impostor: ({ index, ms }) => fleet.impersonate(index, ms),
    cut: (step) => {
      note(`sidecar ${step.sidecar} and core ${step.core} are cut off for ${step.ms} ms`)
      network.addFault({
        ...linkOf(step.sidecar, step.core),
        until: until(step),
        loss: 1,
        slowMs: 0,
      })
    },
    lossy: (step) => {
      note(`sidecar ${step.sidecar} loses ${step.percent} % of its messages for ${step.ms} ms`)
      const fault = { until: until(step), loss: step.percent / 100, slowMs: 0 }
      network.addFault({ ...linkOf(step.sidecar, null), ...fault })
    },
    slow: (step) => {
      note(`messages of sidecar ${step.sidecar} take up to ${step.byMs} ms more for ${step.ms} ms`)
      const fault = { until: until(step), loss: 0, slowMs: step.byMs }
      network.addFault({ ...linkOf(step.sidecar, null), ...fault })
    },
    jump: ({ role, index, byMs }) => fleet.jump(role, index, byMs),
    'database jump': ({ byMs }) => {
      note(`the clock of the database jumps by ${byMs} ms`)
      database.clock.skewMs += byMs
    },
    stall: (step) => {
      note(`the stream stalls for ${step.ms} ms`)
      broker.addFault({ kind: 'stall', until: until(step) })
    },
    'lose events': (step) => {
      note(`the signers lose ${step.percent} % of their events for ${step.ms} ms`)
      broker.addFault({ kind: 'loss', until: until(step), probability: step.percent / 100 })
    },
    'delay events': (step) => {
      note(`events take up to ${step.byMs} ms more for ${step.ms} ms`)
      broker.addFault({ kind: 'delay', until: until(step), byMs: step.byMs })
    },
    'replay events': () => {
      note('the broker delivers everything again')
      broker.replay()
    },
    rate: ({ usdPerEth }) => {
      note(`the rate becomes ${usdPerEth} USD`)
      world.changeRate(usdPerEth)
    },
    'rate outage': (step) => {
      note(`no rate is observed for ${step.ms} ms`)
      world.startOutage(until(step))
    },
    grant: ({ user, micros }) => {
      note(`user ${user} is given ${micros} micro-dollars`)
      withCore((core) =>
        core.grant(world.userOf(user), usdAttos(BigInt(micros) * attosPerMicro), null),
      )
    },
    debit: ({ user, micros }) => {
      note(`an operator takes ${micros} micro-dollars from user ${user}`)
      withCore((core) => core.debit(world.userOf(user), usdAttos(BigInt(micros) * attosPerMicro)))
    },
    'card lost': ({ user, ms }) => {
      note(`the card of user ${user} is lost for ${ms} ms`)
      credit.loseCard(user, ms)
    },
    ceiling: ({ user, micros }) => {
      note(`the ceiling of user ${user} becomes ${micros} micro-dollars`)
      credit.setCeiling(user, micros)
    },
    'charge paid': ({ user, percent }) => {
      note(`${percent} % of the debt of user ${user} is paid`)
      withCore((core) => core.collect(world.userOf(user), percent))
    },
    'charge failed': ({ user }) => {
      note(`the card of user ${user} is declined`)
      credit.loseCard(user, null)
    },
    refund: ({ user, percent }) => {
      note(`user ${user} gets ${percent} % of the payments back`)
      withCore((core) => core.refund(world.userOf(user), percent))
    },
    'mode change': ({ ms }) => {
      note(`users have no credit lines for ${ms} ms`)
      credit.changeMode(ms)
    },
  }

  return (step: Step): void => {
    const perform = performers[step.kind] as (step: Step) => void
    perform(step)
  }
}
