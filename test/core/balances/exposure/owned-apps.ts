import { type Person, manage } from '../../../support/web/people.ts'
import { type TestApp, type TestCore, basicOf } from '../../support.ts'

/** Apps of owners, and the owners' accounts. */

/** Creates an app of a person. Each of its users has 1,000 USD. */
export async function newOwnedApp(
  core: TestCore,
  { token }: Person,
  more: object = {},
): Promise<TestApp> {
  const created = await manage(core, { session: token }).createApp({ name: 'An app', ...more })
  const { clientId, m2mClientId, m2mClientSecret: secret } = created
  await sellStarter(core, clientId, null)
  return { clientId, m2mClientId, secret, basic: basicOf(m2mClientId, secret) }
}

/**
 * Adds a version of the Starter plan that includes 1,000 USD and sells at this rate, or at network
 * price if null.
 */
export const sellStarter = (core: TestCore, clientId: string, rate: string | null) =>
  core.sql.query(
    `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos, retail_rate,
                                billing_cycle, created_at)
     select app_id, plan_id, version + 1, type, price_amount, price_currency, 1000 * 10::numeric ^ 18, $2, billing_cycle, created_at
     from plan_versions
     where plan_id = (select p.id from plans p join clients c using (app_id) where c.client_id = $1 and is_starter_default)
     order by version desc
     limit 1`,
    [clientId, rate],
  )

/** Changes the row of an owner's account. */
export const setOwnerAccount = (core: TestCore, account: string, set: string) =>
  core.sql.query(
    `update balances b set ${set}
     from platform_app p, end_users u
     where b.app_id = p.app_id and u.app_id = p.app_id and u.id = b.user_id and u.external_user_id = 'account:' || $1`,
    [account],
  )
