import type * as pb from '../../../proto/gen/ts-proto/tollgate/metering/v1/reconciliation.ts'
import { usdAttos } from '../../lib/money.ts'
import type { Pool } from '../../lib/sql.ts'
import { countItems } from '../../shared/outbox/outbox.ts'
import { operator } from '../../rpc/guards.ts'
import { type Handlers, streamRpc } from '../../rpc/serve.ts'
import { exactMicros } from './cloud-event.ts'
import { eventsKind } from './emit.ts'
import { type AppDay, type UserDay, toMicros } from './comparison.ts'
import type { Reconciliation } from './reconciliation.ts'

export function createReconciliationRpc({
  pool,
  reconciliation,
}: {
  pool: Pool
  reconciliation: Reconciliation
}) {
  const reconciliationService: Handlers<pb.ReconciliationServiceServer> = {
    reconcile: streamRpc(operator(), async (request: pb.ReconcileRequest, emit, { signal }) => {
      const span = await reconciliation.spanOf(request)
      const waiting = String(await countItems(pool, eventsKind))
      for await (const day of reconciliation.compare(span, signal))
        emit(toResponse(day, request.all, waiting))
    }),
  }
  return { reconciliationService }
}

const usersMax = 1_000

function toResponse(
  { clientId, day, users }: AppDay,
  all: boolean,
  waiting: string,
): pb.ReconcileResponse {
  const drifting = users.filter((user) => user.drifts)
  const sum = (value: (user: UserDay) => bigint): bigint =>
    users.reduce((total, user) => total + value(user), 0n)
  return {
    clientId,
    day,
    ownTickets: String(sum((user) => user.ownTickets)),
    backendTickets: String(users.reduce((total, user) => total + user.backendTickets, 0)),
    ownUsdMicros: exactMicros(usdAttos(sum((user) => user.ownCost))),
    backendUsdMicros: formatMicros(users.reduce((total, user) => total + user.backendMicros, 0)),
    drifting: drifting.length,
    waitingEvents: waiting,
    users: (all ? users : drifting)
      .toSorted((a, b) => difference(b) - difference(a))
      .slice(0, usersMax)
      .map(toUser),
  }
}

const toUser = (user: UserDay): pb.ReconciledUser => ({
  subject: user.subject,
  externalUserId: user.externalUserId ?? undefined,
  ownTickets: String(user.ownTickets),
  backendTickets: String(user.backendTickets),
  ownUsdMicros: exactMicros(user.ownCost),
  backendUsdMicros: formatMicros(user.backendMicros),
  drifts: user.drifts,
})

const difference = (user: UserDay): number => Math.abs(user.backendMicros - toMicros(user.ownCost))

/** Formats a float with up to six decimals, without an exponent. */
const formatMicros = (micros: number): string => micros.toFixed(6).replace(/\.?0+$/, '')
