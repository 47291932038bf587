import { DomainError } from '../../../proto/errors.ts'
import type { Log } from '../../lib/log.ts'
import type { Metrics } from '../../lib/metrics.ts'
import type { MeteringBackend } from './backend.ts'
import type { BackendConfig } from './config.ts'
import { createOpenMeter } from './openmeter.ts'

/** The backend that the settings name. */
export function createBackend(config: BackendConfig, deps: { log: Log; metrics: Metrics }): MeteringBackend {
  if (config.name === 'openmeter') return createOpenMeter({ ...deps, config: config.openMeter })
  return config.name === 'none' ? none : embedded
}

/**
 * Calls that are only answered while the backend can be asked (decision 4, specification: errors): unreachable or not
 * configured, they are refused before anything else is looked at. The figures themselves stay the ledger's, exact.
 */
export const answeredBeside = (backend: MeteringBackend) =>
  <Args extends readonly unknown[], Result>(call: (...args: Args) => Promise<Result>) =>
    async (...args: Args): Promise<Result> => {
      await backend.requireAnswers()
      return call(...args)
    }

const nothingOutside = { destinations: [], start: () => {}, stop: async () => {}, ready: () => ({}) }

/** Our own tables are the reports; nothing is sent anywhere. */
const embedded: MeteringBackend = { ...nothingOutside, name: 'embedded', requireAnswers: async () => {}, query: async () => null }

/** Reports are switched off. The ledger, and so the gate, goes on. */
const none: MeteringBackend = { ...nothingOutside, name: 'none', requireAnswers: refuse, query: refuse }

async function refuse(): Promise<never> {
  throw new DomainError('METERING_NOT_CONFIGURED', 'no metering backend is configured')
}
