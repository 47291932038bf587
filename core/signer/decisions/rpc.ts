import * as pb from '../../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { M2mCaller, MemberCaller, OperatorCaller } from '../../rpc/callers.ts'
import { m2mOrMember, operator, orOperator, serviceCaller } from '../../rpc/guards.ts'
import type { AppId } from '../../shared/ids.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { explain } from './explanation.ts'
import type { DecisionRecord } from './record.ts'
import type { Decisions } from './service.ts'

// A sidecar sends up to 500 records at once.
const messageMaxBytes = 4 * 1024 * 1024

export function createDecisionRpc({ decisions }: { decisions: Decisions }) {
  const reader = orOperator(m2mOrMember(), operator())
  const decisionService: Handlers<pb.DecisionServiceServer> = {
    recordDecisions: rpc(
      serviceCaller('sidecar'),
      async (request: pb.RecordDecisionsRequest) => {
        await decisions.record(request.decisions.map(toRecord))
        return {}
      },
      { messageMaxBytes },
    ),
    getDecision: rpc(reader, async ({ decisionId }: pb.GetDecisionRequest, caller) =>
      toAnswer(await decisions.find(decisionId, appOf(caller))),
    ),
    listDecisions: rpc(reader, async (request: pb.ListDecisionsRequest, caller) => {
      const clientId = caller.kind === 'operator' ? (request.clientId ?? null) : null
      const filter = { ...filterOf(request), appId: appOf(caller), clientId }
      return toList(await decisions.list(filter, request.limit))
    }),
  }
  return { decisionService }
}

/** The app whose decisions the caller may read; null for any. */
const appOf = (caller: M2mCaller | MemberCaller | OperatorCaller): AppId | null =>
  caller.kind === 'operator' ? null : caller.appId

function toRecord({ credential, ...decision }: pb.Decision): DecisionRecord {
  if (!credential) throw new DomainError('REQUEST_INVALID', 'a decision has no credential')
  return { ...decision, credential }
}

const filterOf = ({
  externalUserId = null,
  code = null,
}: {
  readonly externalUserId?: string | null | undefined
  readonly code?: string | null | undefined
}) => ({ externalUserId, code })

const toList = (records: readonly DecisionRecord[]) => ({
  decisions: records.map((record) => pb.Decision.fromPartial(record)),
})

const toAnswer = (record: DecisionRecord) => ({
  decision: pb.Decision.fromPartial(record),
  explanation: explain(record),
})
