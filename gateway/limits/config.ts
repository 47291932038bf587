import type { EnvReader } from '../../core/lib/env.ts'
import type { Reloadable } from '../../core/lib/settings/reloadable.ts'

/** Requests or failures per minute. */
export interface LimitSettings {
  readonly perAddress: number
  readonly perClient: number
  readonly loginPerAddress: number
  readonly failuresPerAddress: number
  readonly failuresPerClient: number
}

/** Returns the limits, null if they are off. */
export function readLimits(env: EnvReader): Reloadable<LimitSettings> | null {
  const settings = env.live(() => readSettings(env))
  const state = env.choice('RATE_LIMITS', {
    meaning:
      "Whether these are rate limited: token, device, key-exchange, validate and login routes, the builder API's creation of users, the edge, and wrong credentials at usage routes and ingest.",
    fallback: 'on',
    choices: ['on', 'off'],
  })
  return state === 'on' ? settings : null
}

function readSettings(env: EnvReader): LimitSettings {
  const perMinute = (name: string, meaning: string, fallback: string) =>
    env.integer(name, { meaning, fallback, min: 1, max: 1_000_000 })
  return {
    perAddress: perMinute(
      'RATE_LIMIT_ADDRESS',
      "Requests a minute from one address to the token routes; counted separately, with the same limit, for device, key-exchange and validate routes, and for the builder API's creation of users.",
      '6000',
    ),
    perClient: perMinute(
      'RATE_LIMIT_CLIENT',
      'Accepted requests a minute of one client, counted for each kind of route.',
      '6000',
    ),
    loginPerAddress: perMinute(
      'RATE_LIMIT_LOGIN',
      'Requests a minute from one address to the login routes.',
      '60',
    ),
    failuresPerAddress: perMinute(
      'RATE_LIMIT_FAILURES',
      'Failed authentications a minute after which an address must wait, and failed login attempts at one account after which unknown browsers must wait longer and longer.',
      '60',
    ),
    failuresPerClient: perMinute(
      'RATE_LIMIT_CLIENT_FAILURES',
      'Failed authentications a minute as one client after which an address must wait with that client, and attempts to log in to one account from one address or known browser.',
      '20',
    ),
  }
}
