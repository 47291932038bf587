import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  type Connections,
  createConnections,
} from '../../../../core/billing/processor/connections.ts'
import type { PaymentProcessor } from '../../../../core/billing/processor/port.ts'
import { createSimulatedProcessor } from '../../../../core/billing/processor/simulated/simulated.ts'
import { silentLog } from '../../../../core/lib/log.ts'
import { type AppId, accountId } from '../../../../core/shared/ids.ts'
import { createSecrets } from '../../../../core/shared/secrets.ts'
import { DomainError } from '../../../../proto/errors.ts'
import { type TestCore, pepper, startTestCore } from '../../support.ts'
import { reasonOf } from './port-contract.ts'

/** Connections whose events are lost, and connections of apps that owe something. */

const publicUrl = 'https://svc.example'
const person = accountId('0192f3a0-0000-7000-8000-000000000001')
const minute = 60_000

let core: TestCore
let connections: Connections
let simulated: ReturnType<typeof createSimulatedProcessor>
let processor: PaymentProcessor
let isUnpaid: boolean
beforeAll(async () => {
  core = await startTestCore()
  const shared = { pool: core.sql, now: core.clock.now, log: silentLog() }
  simulated = createSimulatedProcessor({ ...shared, publicUrl, receive: async () => {} })
  const peppers = { current: 'p1', byId: new Map([['p1', Buffer.from(pepper)]]) }
  connections = createConnections({
    ...shared,
    secrets: createSecrets(peppers),
    publicUrl,
    processor: { ...simulated.processor, readAccount: (at) => processor.readAccount(at) },
    hasUnpaid: async () => isUnpaid,
    onChange: async () => {},
  })
})
afterAll(() => core.stop())
beforeEach(() => {
  isUnpaid = false
  processor = simulated.processor
})

async function newApp(isTest = false): Promise<AppId> {
  const { clientId } = await core.newApp({ isTest })
  const { rows } = await core.sql.query<{ id: AppId }>(
    'select app_id as id from clients where client_id = $1',
    [clientId],
  )
  if (rows[0] === undefined) throw new Error('the app was not created')
  return rows[0].id
}

/** Starts a connection and returns what acts at the processor. */
async function connect(appId: AppId) {
  const { url } = await connections.connect({ appId, accountId: person, email: 'o@example.com' })
  const { pathname, searchParams } = new URL(url)
  const account = pathname.split('/').at(-1) ?? ''
  const link = searchParams.get('link') ?? ''
  return {
    account,
    act: (action: 'complete' | 'submit' | 'end') =>
      simulated.pages.onboarding.act(account, link, action),
  }
}

const statusOf = async (app: AppId) => (await connections.findConnection(core.sql, app)).status

async function runUpkeep(): Promise<void> {
  for (const step of connections.upkeep) await step()
}

describe('upkeep', () => {
  it('finds the completion of an account without its event', async () => {
    const app = await newApp()
    const { act } = await connect(app)
    await act('complete')
    expect(await statusOf(app)).toBe('pending')
    await runUpkeep()
    expect(await statusOf(app)).toBe('connected')
  })

  it('finds the end of a connection without its event, within six hours', async () => {
    const app = await newApp()
    const { act } = await connect(app)
    await act('complete')
    await runUpkeep()
    await act('end')
    core.clock.advance(6 * 60 * minute)
    await runUpkeep()
    expect(await statusOf(app)).toBe('connected')
    core.clock.advance(1)
    await runUpkeep()
    expect(await statusOf(app)).toBe('disconnected')
  })

  it('goes on after an account that the processor refuses to show', async () => {
    const refused = await newApp()
    const { account } = await connect(refused)
    const app = await newApp()
    const { act } = await connect(app)
    await act('complete')
    processor = {
      ...simulated.processor,
      readAccount: async (at) => {
        if (at.account === account) throw new DomainError('PROCESSOR_REFUSED', 'no access')
        return simulated.processor.readAccount(at)
      },
    }
    await runUpkeep()
    expect(await statusOf(app)).toBe('connected')
    expect(await statusOf(refused)).toBe('pending')
  })
})

describe('event', () => {
  const event = (plane: 'live' | 'test', account: string) =>
    connections.receive({
      id: 'evt_1',
      at: { plane, account },
      subject: 'account',
      type: 'account.updated',
      objectId: account,
      payment: null,
      isDeauthorization: true,
    })

  it('is read again, and never believed', async () => {
    const app = await newApp()
    const { account, act } = await connect(app)
    await act('complete')
    await event('live', account)
    await event('live', account)
    expect(await statusOf(app)).toBe('connected')
  })

  it('of the other plane or an unknown account changes nothing', async () => {
    const app = await newApp()
    const { account, act } = await connect(app)
    await act('complete')
    await event('test', account)
    await event('live', 'acct_sim_none')
    expect(await statusOf(app)).toBe('pending')
  })
})

describe('app that owes something', () => {
  it('is not disconnected until it is paid', async () => {
    const app = await newApp()
    const { act } = await connect(app)
    await act('complete')
    await runUpkeep()
    isUnpaid = true
    expect(await reasonOf(connections.disconnect(app))).toBe('CONFLICT')
    expect(await statusOf(app)).toBe('connected')
    isUnpaid = false
    await connections.disconnect(app)
    expect(await statusOf(app)).toBe('disconnected')
  })
})

describe('states', () => {
  it('are at most ten per person and app, hashed, and deleted a day after their end', async () => {
    const app = await newApp()
    for (let i = 0; i < 12; i++) {
      await connect(app)
      core.clock.advance(1)
    }
    const count = async () =>
      (await core.sql.query('select hash from connect_states where app_id = $1', [app])).rows
    const rows = await count()
    expect(rows).toHaveLength(10)
    expect(rows.every(({ hash }) => Buffer.isBuffer(hash) && hash.length === 32)).toBe(true)
    core.clock.advance(25 * 60 * minute)
    await runUpkeep()
    expect(await count()).toHaveLength(0)
  })
})
