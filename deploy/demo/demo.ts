import { playAllowance } from './allowance.ts'
import { playPayments } from './payments.ts'
import { createScreen } from './screen.ts'
import { type Target, findService, requireSimulated, usableRate } from './service.ts'

interface DemoOptions {
  readonly pauseMs: number
  readonly target: Target
}

/** Plays the demo. Resolves to whether everything adds up. */
export async function runDemo({ pauseMs, target }: DemoOptions): Promise<boolean> {
  const service = await findService(target)
  const screen = createScreen(process.stdout)
  const rate = await usableRate(service, { target, screen })
  await requireSimulated(service, target)
  const act = { service, rate, screen, target, pauseMs }
  screen.act('Included usage: a new user spends until nothing is left')
  const spent = await playAllowance(act)
  screen.act('Payments: an app sells, and a month ends')
  const paid = await playPayments(act)
  screen.verdict(spent && paid)
  return spent && paid
}
