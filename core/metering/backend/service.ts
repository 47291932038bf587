import { DomainError } from '../../../proto/errors.ts'
import type { Log } from '../../lib/log.ts'
import type { Metrics } from '../../lib/metrics.ts'
import type { Now } from '../../lib/time.ts'
import type { MeteringBackend } from './backend.ts'
import type { FindSubscriber } from './subscribers.ts'
import type { BackendConfig } from './config.ts'
import { createOpenMeter } from './openmeter/openmeter.ts'

/** Creates the configured backend. */
export function createBackend(
  config: BackendConfig,
  deps: { log: Log; metrics: Metrics; now: Now; findSubscriber: FindSubscriber },
): MeteringBackend {
  if (config.name === 'openmeter') return createOpenMeter({ ...deps, config: config.openMeter })
  return config.name === 'none' ? none : embedded
}

const nothingOutside = {
  destinations: [],
  plans: null,
  start: () => {},
  stop: async () => {},
  ready: () => ({}),
}

/** Reports come from our own tables, and nothing is sent. */
const embedded: MeteringBackend = {
  ...nothingOutside,
  name: 'embedded',
  requireAnswers: async () => {},
  query: async () => null,
}

/** Reports are switched off. Ledger and authorisation work without them. */
const none: MeteringBackend = {
  ...nothingOutside,
  name: 'none',
  requireAnswers: refuse,
  query: refuse,
}

async function refuse(): Promise<never> {
  throw new DomainError('METERING_NOT_CONFIGURED', 'no metering backend is configured')
}
