import { createLedger } from '../../../core/balances/ledger/ledger.ts'
import { newUserId } from '../../../core/shared/ids.ts'
import { createPlans } from '../../../core/plans/service.ts'
import { tx } from '../../../core/lib/sql.ts'
import { wireCore } from '../core.ts'
import type { Bench, Finding } from '../row.ts'
import { count } from '../table.ts'

const chunk = 2_000
const day = 86_400_000

/**
 * Measures how many users per second one core's sweep takes into their next period, when all
 * periods end at once.
 */
export async function renewals(bench: Bench): Promise<Finding[]> {
  const users = bench.quick ? 20_000 : 100_000
  const server = await bench.server()
  const core = wireCore(await server.create())
  bench.defer(core.stop)
  const ledger = createLedger()
  const plans = createPlans({ ledger })
  const { appId } = await core.createApp()
  const at = new Date()
  bench.say(`subscribing ${count(users)} users`)
  for (let from = 0; from < users; from += chunk) {
    const batch = Array.from({ length: chunk }, () => ({ appId, userId: newUserId() }))
    await tx(core.pool, async (db) => {
      await db.query(
        `insert into end_users (app_id, id, external_user_id, status, created_at, updated_at)
         select $1, id, id::text, 'active', $3, $3 from unnest($2::uuid[]) as id`,
        [appId, batch.map(({ userId }) => userId), at],
      )
      await plans.startOnStarter(db, batch, at)
    })
  }
  await core.pool.query('vacuum analyze balances, grants, subscriptions')
  const later = new Date(at.getTime() + 32 * day)
  const started = performance.now()
  let entered = 0
  for (;;) {
    const batch = await ledger.renew(core.pool, later)
    if (batch === 0) break
    entered += batch
  }
  const seconds = (performance.now() - started) / 1_000
  if (entered !== users) throw new Error(`${entered} of ${users} periods were entered`)
  return [
    {
      name: 'periods entered by the sweep, in a second',
      unit: '',
      target: { atLeast: 3_000 },
      value: entered / seconds,
      spread: null,
      detail: `${count(entered)} in ${seconds.toFixed(1)} s, in batches of one transaction`,
    },
  ]
}
