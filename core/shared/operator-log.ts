import type { Reason } from '../../proto/errors.ts'
import type { Log } from '../lib/log.ts'
import type { Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { type AuditEntry, audit, auditRepeated } from './audit.ts'

/** A call by an operator's command or a platform admin that changes something. */
export interface OperatorCall {
  readonly rpc: string
  readonly request: unknown
  /** The operator's name, or the platform admin's account. */
  readonly actor: string
  readonly correlationId: string
  /**
   * Whether all calls of a minute with the same subject share one entry. For commands that make
   * many calls.
   */
  readonly isRepeated: boolean
  /** Null if it succeeded. */
  readonly reason: Reason | null
}

/** Request fields that identify the action and its subject. These fields never hold a secret. */
const subjects = new Set([
  'accountId',
  'allApps',
  'amountUsdMicros',
  'appsMax',
  'author',
  'billingMode',
  'clientId',
  'clientIds',
  'dryRun',
  'email',
  'endUserCap',
  'eventId',
  'externalUserId',
  'featureKey',
  'fileSha256',
  'force',
  'id',
  'invitationId',
  'isPlatformAdmin',
  'isPlatformOwned',
  'keyId',
  'maxUsdMicros',
  'mayPushEvents',
  'modelId',
  'name',
  'newEmail',
  'observedAt',
  'overlapSeconds',
  'planId',
  'pipeline',
  'planJson',
  'ownerEmail',
  'platformCutPercent',
  'purpose',
  'reason',
  'role',
  'servesEveryApp',
  'source',
  'status',
  'starterUsdMicros',
  'underNewId',
  'uri',
  'usdPerEth',
  'use',
])
const valueMax = 200
const operatorSyntax = /^[\p{L}\p{N}._@\\-]{1,128}$/u

/**
 * Writes an audit entry for each call of an operator or platform admin that changes something,
 * including refused calls: who, which RPC, the subject and the result. If the entry cannot be
 * written, an error is logged and the call still succeeds, because the change has already happened.
 */
export function createOperatorLog({ pool, log, now }: { pool: Pool; log: Log; now: Now }) {
  async function record(call: OperatorCall): Promise<void> {
    const subject = subjectOf(call.request)
    const kind = `${call.rpc} ${JSON.stringify(subject)}`
    const entry: AuditEntry = {
      appId: null,
      actor: call.actor,
      action: 'operator_command',
      status: call.reason === null ? 'success' : 'refused',
      correlationId: call.correlationId,
      details: {
        rpc: call.rpc,
        ...subject,
        ...(call.reason === null ? {} : { refusal: call.reason.toLowerCase() }),
      },
      at: now(),
    }
    await (call.isRepeated ? auditRepeated(pool, entry, kind) : audit(pool, entry)).catch(
      (error: unknown) => log.error({ err: error, rpc: call.rpc }, 'audit entry lost'),
    )
  }

  return { record }
}

export type OperatorLog = ReturnType<typeof createOperatorLog>

/**
 * The actor of an operator's call in the audit log. The command chooses the name, so it proves
 * nothing.
 */
export function operatorName(name: string | undefined): string {
  const text = name === undefined ? '' : decoded(name)
  return operatorSyntax.test(text) ? `operator:${text}` : 'operator'
}

// Metadata is ASCII, but people's names are not.
function decoded(name: string): string {
  try {
    return decodeURIComponent(name)
  } catch {
    return ''
  }
}

function subjectOf(request: unknown): Record<string, string | number | boolean> {
  const details: Record<string, string | number | boolean> = {}
  if (typeof request !== 'object' || request === null) return details
  for (const [field, value] of Object.entries(request)) {
    if (!subjects.has(field)) continue
    if (typeof value === 'string') details[field] = value.slice(0, valueMax).replace(/\0/g, '')
    else if (Array.isArray(value)) details[field] = value.join(' ').slice(0, valueMax)
    else if (typeof value === 'number' || typeof value === 'boolean') details[field] = value
  }
  return details
}
