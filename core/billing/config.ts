import type { EnvReader } from '../lib/env.ts'
import { type ProcessorConfig, readProcessorConfig } from './processor/config.ts'

const gateModes = ['off', 'log', 'enforce_revenue', 'enforce'] as const
/**
 * What the activation gate rejects: nothing (off), nothing but it logs what it would (log), sales,
 * or sales and new users.
 */
export type GateMode = (typeof gateModes)[number]

export interface BillingConfig {
  readonly gateMode: GateMode
  /** Default cap of end users per app. */
  readonly endUserCap: number
  /** Cards that one core charges for invoices at a time. */
  readonly chargesAtOnce: number
  readonly processor: ProcessorConfig
}

export const endUserCapMax = 1_000_000
/** As many as the connections to the payment processor. */
const chargesAtOnceMax = 64

/** Declares and reads the settings of billing. */
export const readBillingConfig = (env: EnvReader): BillingConfig => ({
  gateMode: env.choice('ACTIVATION_GATE_MODE', {
    fallback: env.isEmbedded ? 'log' : 'enforce',
    choices: gateModes,
    meaning:
      'Mode of the activation gate: off, log (refuses nothing, but logs what it would refuse), enforce_revenue (refuses sales only), or enforce. The all-in-one service uses log by default.',
  }),
  endUserCap: env.integer('END_USER_CAP', {
    fallback: '10000',
    min: 1,
    max: endUserCapMax,
    meaning: 'Most active end users of an app; ./tollgate billing cap changes it for an app.',
  }),
  chargesAtOnce: env.integer('COLLECTION_CHARGES_AT_ONCE', {
    fallback: '16',
    min: 1,
    max: chargesAtOnceMax,
    meaning:
      'How many cards one core charges for invoices at a time. More helps at the end of a month if the payment processor answers slowly.',
  }),
  processor: readProcessorConfig(env),
})
