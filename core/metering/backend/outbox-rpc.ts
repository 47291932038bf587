import type * as pb from '../../../proto/gen/ts-proto/tollgate/metering/v1/outbox.ts'
import { operator, operatorWrite, orOperator, platformAdmin } from '../../rpc/guards.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { figures, listSetAside, retrySetAside, waitingSince } from '../../shared/outbox/outbox.ts'

const shownMax = 100

export function createOutboxRpc({ pool, now }: { pool: Pool; now: Now }) {
  const outboxService: Handlers<pb.OutboxServiceServer> = {
    getOutbox: rpc(
      orOperator(platformAdmin(), operator()),
      async (_request: pb.GetOutboxRequest) => {
        const [{ waiting, setAside }, since, rows] = await Promise.all([
          figures(pool),
          waitingSince(pool),
          listSetAside(pool, shownMax),
        ])
        return {
          waiting: String(waiting),
          waitingSince: since?.toISOString(),
          setAside: String(setAside),
          rows: rows.map((row) => ({
            id: String(row.id),
            kind: row.kind,
            items: row.itemCount,
            error: row.error,
            createdAt: row.createdAt.toISOString(),
            setAsideAt: row.setAsideAt.toISOString(),
          })),
        }
      },
    ),

    retryOutbox: rpc(
      orOperator(platformAdmin(), operatorWrite()),
      async (_request: pb.RetryOutboxRequest) => ({
        rows: String(await retrySetAside(pool, now())),
      }),
    ),
  }
  return { outboxService }
}
