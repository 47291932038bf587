import type { CoreReplica } from './core.ts'
import type { History } from '../history.ts'
import type { Plan, Role } from '../plan.ts'
import { type Process, type Scheduler, newProcess } from '../scheduler.ts'
import type { SidecarReplica } from './sidecar.ts'

export interface FleetDeps {
  readonly plan: Plan
  readonly scheduler: Scheduler
  readonly history: History
  readonly startCore: (process: Process) => CoreReplica
  readonly startSidecar: (process: Process, id: string) => SidecarReplica
}

/** Starts, kills, freezes and restarts all processes of the simulation. */
export function createFleet({ plan, scheduler, history, startCore, startSidecar }: FleetDeps) {
  const { world } = plan
  const signers = world.signers.map((skew, index) => newProcess(`signer ${index}`, skew))
  const cores: CoreReplica[] = []
  const sidecars: SidecarReplica[] = []
  let starts = 0

  function start(): void {
    world.cores.forEach(
      (skew, index) => (cores[index] = startCore(newProcess(`core ${index}`, skew))),
    )
    world.sidecars.forEach((_, index) => launchSidecar(index))
  }

  function launchSidecar(index: number): void {
    const before = sidecars[index]
    const process = newProcess(`sidecar ${index}`, before?.process.skewMs ?? world.sidecars[index])
    launch(process, (name) => (sidecars[index] = startSidecar(name, `sidecar-${index}`)))
  }

  // Everything that a process starts runs as that process.
  function launch(process: Process, work: (process: Process) => void): void {
    starts += 1
    scheduler.schedule(process, 0, () => work(process))
  }

  const replicaOf = (role: Role, index: number): Process | undefined => {
    if (role === 'core') return cores[index]?.process
    return role === 'sidecar' ? sidecars[index]?.process : signers[index % signers.length]
  }

  /** Kills a process and starts its successor after `ms`. */
  function kill(role: Role, index: number, ms: number): void {
    const process = replicaOf(role, index)
    if (!process?.isAlive) return
    history.note(scheduler.now(), `${process.name} is killed for ${ms} ms`)
    process.isAlive = false
    scheduler.schedule(null, ms, () => restart(role, index))
  }

  function restart(role: Role, index: number): void {
    const process = replicaOf(role, index)
    if (!process || process.isAlive) return
    history.note(scheduler.now(), `${process.name} starts again`)
    if (role === 'signer') process.isAlive = true
    else if (role === 'sidecar') launchSidecar(index)
    else cores[index] = startCore(newProcess(process.name, process.skewMs))
  }

  function freeze(role: Role, index: number, ms: number): void {
    const process = replicaOf(role, index)
    if (!process) return
    history.note(scheduler.now(), `${process.name} freezes for ${ms} ms`)
    process.frozenUntil = Math.max(process.frozenUntil, scheduler.now() + ms)
  }

  /** Suspends a process with its machine: it is frozen, and its monotonic clock stops. */
  function suspend(role: Role, index: number, ms: number): void {
    const process = replicaOf(role, index)
    if (!process || process.frozenUntil > scheduler.now()) return
    history.note(scheduler.now(), `${process.name} is suspended for ${ms} ms`)
    process.frozenUntil = scheduler.now() + ms
    process.suspendedMs += ms
  }

  function jump(role: Role, index: number, byMs: number): void {
    const process = replicaOf(role, index)
    if (!process) return
    history.note(scheduler.now(), `the clock of ${process.name} jumps by ${byMs} ms`)
    process.skewMs += byMs
  }

  /** Stops a sidecar cleanly. Starts its successor after `ms`, unless `ms` is null. */
  function stop(index: number, ms: number | null): void {
    const sidecar = sidecars[index]
    if (!sidecar?.process.isAlive) return
    history.note(scheduler.now(), `${sidecar.name} stops`)
    scheduler.schedule(sidecar.process, 0, () => {
      const end = (): void => {
        sidecar.process.isAlive = false
        if (ms !== null) scheduler.schedule(null, ms, () => restart('sidecar', index))
      }
      void sidecar.stop().then(end, end)
    })
  }

  /** Starts another process with the id of a sidecar for `ms`. */
  function impersonate(index: number, ms: number): void {
    const process = newProcess(`impostor of sidecar ${index}`)
    history.note(scheduler.now(), `${process.name} starts, for ${ms} ms`)
    launch(process, (own) => startSidecar(own, `sidecar-${index}`))
    scheduler.schedule(null, ms, () => void (process.isAlive = false))
  }

  /** Starts processes that are down. Returns the time when the last frozen process thaws. */
  function heal(): number {
    world.cores.forEach((_, index) => restart('core', index))
    world.sidecars.forEach((_, index) => restart('sidecar', index))
    signers.forEach((_, index) => restart('signer', index))
    const processes = [...signers, ...cores, ...sidecars].map((one) =>
      'process' in one ? one.process : one,
    )
    return Math.max(scheduler.now(), ...processes.map(({ frozenUntil }) => frozenUntil))
  }

  const liveCore = (): CoreReplica | undefined =>
    cores.find(({ process }) => process.isAlive && process.frozenUntil <= scheduler.now())

  /** Returns a core that accepts connections, even if it does not answer. */
  function anyCore(random: number): CoreReplica | undefined {
    const alive = cores.filter(({ process }) => process.isAlive)
    return alive[random % Math.max(1, alive.length)]
  }

  return {
    signers,
    cores,
    anyCore,
    sidecar: (index: number) => sidecars[index % Math.max(1, sidecars.length)],
    sidecars,
    liveCore,
    start,
    restartSidecar: (index: number) => restart('sidecar', index),
    kill,
    freeze,
    suspend,
    jump,
    stop,
    impersonate,
    heal,
    starts: () => starts,
  }
}

export type Fleet = ReturnType<typeof createFleet>
