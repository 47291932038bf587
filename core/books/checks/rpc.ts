import type * as pb from '../../../proto/gen/ts-proto/tollgate/books/v1/checks.ts'
import { DomainError } from '../../../proto/errors.ts'
import { operator, operatorWrite, orOperator, platformAdmin } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { CheckState, Checks } from './checks.ts'
import { type CheckName, checkNames } from './store.ts'

export function createChecksRpc({ checks }: { checks: Checks }) {
  const checkService: Handlers<pb.CheckServiceServer> = {
    listChecks: rpc(
      orOperator(platformAdmin(), operator()),
      async (_request: pb.ListChecksRequest) => ({ checks: (await checks.list()).map(toCheck) }),
    ),

    startCheck: rpc(
      orOperator(platformAdmin(), operatorWrite()),
      async ({ name }: pb.StartCheckRequest, caller) => {
        await checks.start(parseName(name), caller.kind === 'account' ? caller.email : caller.name)
        return {}
      },
    ),
  }
  return { checkService }
}

function parseName(text: string): CheckName {
  const name = checkNames.find((known) => known === text)
  if (name === undefined) throw new DomainError('NOT_FOUND', 'there is no such check')
  return name
}

const toCheck = ({ name, isConfigured, last }: CheckState): pb.Check => ({
  name,
  configured: isConfigured,
  last: last === null ? undefined : toRun(last),
})

const toRun = ({
  state,
  startedAt,
  startedBy,
  endedAt,
  progress,
  outcome,
}: NonNullable<CheckState['last']>): pb.CheckRun => ({
  state,
  startedAt: startedAt.toISOString(),
  startedBy,
  endedAt: endedAt?.toISOString(),
  progress,
  summary: outcome?.summary,
  failure: outcome?.failure ?? undefined,
  findingCount: outcome?.total ?? 0,
  findings: (outcome?.findings ?? []).map(({ clientId, text }) => ({
    clientId: clientId ?? undefined,
    text,
  })),
})
