import * as pb from '../../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import { DomainError } from '../../../proto/errors.ts'
import { m2mOrMember, operator, serviceCaller } from '../../rpc/callers.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { explain } from './explanation.ts'
import type { DecisionRecord } from './record.ts'
import type { Decisions } from './service.ts'

// A sidecar sends up to 500 records at once.
const messageMaxBytes = 4 * 1024 * 1024

export function createDecisionRpc({ decisions }: { decisions: Decisions }) {
  const decisionService: Handlers<pb.DecisionServiceServer> = {
    recordDecisions: rpc(
      serviceCaller('sidecar'),
      async (request: pb.RecordDecisionsRequest) => {
        await decisions.record(request.decisions.map(toRecord))
        return {}
      },
      { messageMaxBytes },
    ),
    getDecision: rpc(operator(), async ({ decisionId }: pb.GetDecisionRequest) =>
      toAnswer(await decisions.find(decisionId, null)),
    ),
    getAppDecision: rpc(m2mOrMember(), async (request: pb.GetAppDecisionRequest, { appId }) =>
      toAnswer(await decisions.find(request.decisionId, appId)),
    ),
    listDecisions: rpc(operator(), async (request: pb.ListDecisionsRequest) => {
      const filter = { ...filterOf(request), appId: null, clientId: request.clientId ?? null }
      return toList(await decisions.list(filter, request.limit))
    }),
    listAppDecisions: rpc(m2mOrMember(), async (request: pb.ListAppDecisionsRequest, { appId }) =>
      toList(await decisions.list({ ...filterOf(request), appId, clientId: null }, request.limit)),
    ),
  }
  return { decisionService }
}

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
