import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createLedger } from '../../../core/balances/ledger/ledger.ts'
import {
  createCeilings,
  createFindCeilings,
  ownerCeiling,
} from '../../../core/billing/wallet/ceilings.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { freeTerms } from '../../../core/plans/offers/plan.ts'
import { insertPlan } from '../../../core/plans/offers/store.ts'
import type { UserId } from '../../../core/shared/ids.ts'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import { logIn } from '../../support/web/people.ts'
import { escrowUser } from '../balances/escrow/support.ts'
import { type TestApp, type TestCore, begin, serviceToken, startTestCore } from '../support.ts'

let core: TestCore
let operator: CoreClient
let app: TestApp
let ada: Awaited<ReturnType<typeof escrowUser>>['user']
beforeAll(async () => {
  core = await startTestCore()
  operator = connectCore({ target: core.core.target, token: serviceToken, tls: undefined })
})
afterAll(async () => {
  operator.close()
  await core.stop()
})
beforeEach(async () => {
  app = await core.newApp()
  ada = (await escrowUser(core, app)).user
})

const dollar = 10n ** 18n
const cards = new Set<UserId>()
const recalls: string[] = []

/** Ceilings of a deployment with a processor, whose cards are in `cards`. */
const ceilings = () => {
  const findCards = async () => cards
  const ledger = createLedger({ findCeilings: createFindCeilings(findCards) })
  const invalidations = { publish: async ({ id }: { id: string }) => void recalls.push(id) }
  const { now } = core.clock
  return createCeilings({ pool: core.sql, now, ledger, findCards, invalidations } as never)
}

async function subscribe(type: 'usage' | 'free', threshold: bigint | null = null): Promise<void> {
  const plan = { appId: ada.appId, id: randomUUID(), name: randomUUID() }
  const kind = { status: 'active', isStarterDefault: false, isNetworkDefault: false } as const
  const chargeThreshold = threshold === null ? null : usdAttos(threshold)
  const terms = { ...freeTerms, type, chargeThreshold }
  await insertPlan(core.sql, { ...plan, ...kind }, { terms, at: begin })
  await operator.subscriptions.updateSubscription({
    clientId: app.clientId,
    externalUserId: 'ada',
    planId: plan.id,
    timing: 'immediate',
    idempotencyKey: undefined,
  })
}

const setMode = (mode: string) =>
  core.sql.query(
    `insert into billing_settings (app_id, billing_mode, updated_at) values ($1, $2, now())
     on conflict (app_id) do update set billing_mode = $2`,
    [ada.appId, mode],
  )

const stored = async () =>
  (
    await core.sql.query<{ ceiling_attos: string; lacks_card: boolean }>(
      'select ceiling_attos, lacks_card from balances where user_id = $1',
      [ada.userId],
    )
  ).rows[0]

const none = { ceiling_attos: '0', lacks_card: false }

describe("a user's ceiling", () => {
  it('is 0 on Starter and on a free plan, with a card, too', async () => {
    await setMode('merchant')
    cards.add(ada.userId)
    await ceilings().refresh([ada])
    expect(await stored()).toEqual(none)
    await subscribe('free')
    await ceilings().refresh([ada])
    expect(await stored()).toEqual(none)
  })

  it('needs a paid plan and a card', async () => {
    await setMode('merchant')
    await subscribe('usage')
    await ceilings().refresh([ada])
    expect(await stored()).toEqual({ ceiling_attos: '0', lacks_card: true })
    cards.add(ada.userId)
    await ceilings().refreshApp(ada.appId)
    expect(await stored()).toEqual({ ceiling_attos: String(2n * dollar), lacks_card: false })
    cards.delete(ada.userId)
    await ceilings().refresh([ada])
    expect(await stored()).toEqual({ ceiling_attos: '0', lacks_card: true })
  })

  it("is above the plan's charge threshold", async () => {
    await setMode('merchant')
    await subscribe('usage', 10n * dollar)
    cards.add(ada.userId)
    await ceilings().refresh([ada])
    expect((await stored())?.ceiling_attos).toBe(String((21n * dollar) / 2n))
  })

  it("is the owner's setting", async () => {
    await setMode('merchant')
    await subscribe('usage')
    cards.add(ada.userId)
    const { clientId } = app
    await operator.overage.updateOverage({ clientId, ceilingUsdMicros: '7000000' })
    await ceilings().refresh([ada])
    expect((await stored())?.ceiling_attos).toBe(String(7n * dollar))
  })

  it('is out of reach where the owner pays for the users, without a card', async () => {
    await setMode('owner_rollup')
    await subscribe('usage')
    await ceilings().refresh([ada])
    expect(await stored()).toEqual(none)
    const account = await logIn(core)
    await core.sql.query(
      `insert into members (app_id, account_id, role, created_at) values ($1, $2, 'owner', now())`,
      [ada.appId, account.accountId],
    )
    await ceilings().refresh([ada])
    expect(await stored()).toEqual({ ceiling_attos: String(ownerCeiling), lacks_card: false })
    await subscribe('free')
    await ceilings().refresh([ada])
    expect(await stored()).toEqual(none)
    await core.sql.query('update billing_settings set is_platform_owned = true where app_id = $1', [
      ada.appId,
    ])
    await subscribe('usage')
    await ceilings().refresh([ada])
    expect(await stored()).toEqual(none)
  })

  it('follows a change of plan at once', async () => {
    await setMode('merchant')
    await subscribe('usage')
    cards.add(ada.userId)
    await ceilings().refresh([ada])
    await subscribe('free')
    expect(await stored()).toEqual(none)
  })
})
