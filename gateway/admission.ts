import {
  type CredentialDeps,
  explainRefusal,
  readCredential,
  refusalOfCaller,
} from './auth/admission.ts'
import type { Cors } from './http/cors.ts'
import type { Admission } from './http/listener.ts'
import { type Limits, limitHooks } from './limits/limiter.ts'

interface AdmissionDeps extends CredentialDeps {
  /** Absent if browsers have nothing to read. */
  readonly cors?: Cors | undefined
  /** Absent if rate limits are off. */
  readonly limits?: Limits | undefined
}

/** Admits requests by limits and credentials, in the order of decision 13. */
export function createAdmission({ cors, limits, ...credentials }: AdmissionDeps): Admission {
  return {
    cors,
    admit: async (request, reply) => {
      await limits?.admitAddress(request, reply)
      await readCredential(request, credentials)
    },
    refusalOf: async (request, reply, refusal) => {
      const ofCaller = (await refusalOfCaller(request, refusal)) ?? refusal
      const explained = explainRefusal(request, ofCaller)
      return limits?.refusalOf(request, reply, explained) ?? explained
    },
    addHooks: (app) => {
      if (limits) limitHooks(app, limits)
    },
  }
}
