import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import type { Db } from '../../lib/sql.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import { later } from '../../shared/clocks/clocks.ts'
import { findClientId } from '../../shared/clients.ts'
import type { AccountId, AppId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { createConnectStates } from './connect-states.ts'
import type { AccountState, PaymentProcessor, Plane, ProcessorEvent } from './port.ts'
import * as store from './store.ts'
import type { AppAccount } from './store.ts'

/** State of the connection between an app's own account and the payment processor. */
export interface Connection extends AccountState {
  /** `pending`: the account exists but may not take payments yet. */
  readonly status: 'disconnected' | 'pending' | 'connected'
  readonly plane: Plane
  readonly connectedAt: Date | null
}

/** An app's own account at the processor. */
export interface ConnectedAccount {
  readonly plane: Plane
  readonly account: string
}

export interface ConnectionsDeps extends Pick<Shared, 'pool' | 'now' | 'log' | 'secrets'> {
  readonly publicUrl: string
  /** Null if the deployment has no processor. */
  readonly processor: PaymentProcessor | null
  /** Whether users or the owner of the app owe something, or a payment is not decided. */
  readonly hasUnpaid: (db: Db, app: AppId) => Promise<boolean>
  /** Called after an app could, or could no longer, take payments. */
  readonly onChange: (app: AppId) => Promise<void>
}

/** Who connects an app. */
export interface Connector {
  readonly appId: AppId
  readonly accountId: AccountId
  readonly email: string
}

const pendingReadMs = 10 * 60_000
const connectedReadMs = 6 * 3_600_000
const readsMax = 20

/**
 * Connections of apps to the payment processor. An app has one account per plane: test apps in the
 * test plane, others in the live one. The status is derived from the account's flags, which events,
 * returning people and upkeep read again from the processor.
 */
export function createConnections(deps: ConnectionsDeps) {
  const { pool, now, log, publicUrl, hasUnpaid } = deps
  const states = createConnectStates(deps)
  const accounts = createAppAccounts(deps)

  /** Returns the stored state. Does not call the processor. */
  async function findConnection(db: Db, app: AppId): Promise<Connection> {
    const current = deps.processor && (await store.findCurrent(db, app, deps.processor.kind))
    if (!current) return { ...none, plane: await store.findPlane(db, app) }
    return toConnection(current)
  }

  /** Returns the app's account, also one that cannot take payments; null if it has none. */
  async function findAccount(db: Db, app: AppId): Promise<ConnectedAccount | null> {
    const current = deps.processor && (await store.findCurrent(db, app, deps.processor.kind))
    return current?.account ? { plane: current.plane, account: current.account } : null
  }

  /** Whether the app's account can take payments. */
  const isConnected = async (db: Db, app: AppId): Promise<boolean> =>
    (await findConnection(db, app)).status === 'connected'

  /**
   * Returns the app's account, which can take payments. Throws STRIPE_CONNECT_REQUIRED or
   * STRIPE_CONNECT_PENDING without one.
   */
  async function requireAccount(app: AppId): Promise<string> {
    const current = deps.processor && (await store.findCurrent(pool, app, deps.processor.kind))
    if (!current?.account)
      throw new DomainError(
        'STRIPE_CONNECT_REQUIRED',
        'the app has no account at the payment processor; its owner must connect one',
      )
    if (statusOf(current) !== 'connected')
      throw new DomainError(
        'STRIPE_CONNECT_PENDING',
        'the connected account cannot take payments yet; its owner must complete its onboarding',
      )
    return current.account
  }

  /**
   * Starts or continues the connection. Returns the address for the owner. Throws
   * PROCESSOR_NOT_CONFIGURED, and PROCESSOR_UNREACHABLE; a repetition continues.
   */
  async function connect(connector: Connector): Promise<{ readonly url: string }> {
    return lead(connector, await accounts.open(connector))
  }

  /** Reads the account again after the person's return. Throws CONNECT_STATE_INVALID. */
  async function complete(
    connector: Omit<Connector, 'email'>,
    state: string,
    actor: Actor,
  ): Promise<Connection> {
    requireProcessor(deps.processor)
    const { processorAccountId } = await states.use(connector, state)
    const account = await store.findById(pool, connector.appId, processorAccountId)
    // Upkeep and events read the account later if the processor does not answer now.
    if (account)
      await accounts.reread(account, actor).catch((error: unknown) => {
        log.warn({ err: error, appId: connector.appId }, 'a new connection was not read')
      })
    return findConnection(pool, connector.appId)
  }

  /** Replaces an expired address at the processor. Throws CONNECT_STATE_INVALID. */
  async function refresh(connector: Connector, state: string): Promise<{ readonly url: string }> {
    requireProcessor(deps.processor)
    await states.use(connector, state)
    return connect(connector)
  }

  async function lead(
    { appId, accountId }: Connector,
    { id, plane, account }: AppAccount,
  ): Promise<{ readonly url: string }> {
    const processor = requireProcessor(deps.processor)
    const state = await states.issue({ appId, accountId, processorAccountId: id })
    const base = `${publicUrl}/api/v1/apps/${await findClientId(pool, appId)}/billing/processor`
    return processor.createOnboardingUrl(
      { plane, account },
      { returnUrl: `${base}/return?state=${state}`, refreshUrl: `${base}/refresh?state=${state}` },
    )
  }

  /**
   * Ends the connection, if it exists, and keeps its row. Throws CONFLICT while something is unpaid,
   * because its payment would have nowhere to go.
   */
  async function disconnect(app: AppId): Promise<void> {
    if (await hasUnpaid(pool, app))
      throw new DomainError(
        'CONFLICT',
        'something is unpaid in this app; collect it, or wait until it is paid, before you disconnect',
      )
    await store.endAccounts(pool, app, now())
    await deps.onChange(app)
  }

  /** Reads the account of an event again. Ignores other events, and accounts that are not connected here. */
  async function receive({ subject, at }: ProcessorEvent): Promise<void> {
    const { plane, account } = at
    if (subject !== 'account' || account === null || deps.processor === null) return
    const processor = deps.processor.kind
    const current = await store.findByAccount(pool, { plane, account, processor })
    if (current) await accounts.reread(current, { name: processor })
  }

  /** Reads accounts again whose events may be lost. */
  async function rereadAll(): Promise<void> {
    if (deps.processor === null) return
    const at = now()
    const pendingBefore = later(at, -pendingReadMs)
    const before = later(at, -connectedReadMs)
    const { kind } = deps.processor
    const due = await store.listToRead(pool, kind, { pendingBefore, before, limit: readsMax })
    for (const account of due)
      try {
        await accounts.reread(account, { name: kind })
      } catch (error) {
        if (!(error instanceof DomainError) || error.reason !== 'PROCESSOR_REFUSED') throw error
        log.warn({ err: error, appId: account.appId }, 'an account could not be read')
        await store.postponeReading(pool, account, at)
      }
  }

  const upkeep = [rereadAll, states.deleteOld]
  const kind = deps.processor?.kind
  return {
    kind,
    findConnection,
    findAccount,
    isConnected,
    requireAccount,
    connect,
    complete,
    refresh,
    disconnect,
    receive,
    upkeep,
  }
}

export type Connections = ReturnType<typeof createConnections>

/** Creates apps' accounts at the processor, and reads them. */
function createAppAccounts({ pool, now, ...deps }: ConnectionsDeps) {
  /**
   * Returns the app's account, created if it has none. The row is the intent: its id is the key of
   * the request, so that a repetition after a crash finds the same account.
   */
  async function open({ appId, email }: Connector): Promise<AppAccount> {
    const processor = requireProcessor(deps.processor)
    const plane = await store.findPlane(pool, appId)
    if (!processor.planes.includes(plane))
      throw new DomainError(
        'PROCESSOR_NOT_CONFIGURED',
        `the payment processor of this deployment has no credentials for the ${plane} plane`,
      )
    const intent = { id: uuidV7(now().getTime()), processor: processor.kind, plane, at: now() }
    await store.insertAccount(pool, appId, intent)
    const row = await store.findCurrent(pool, appId, processor.kind)
    if (row === null) throw endedMeanwhile()
    if (row.account !== null) return row
    const key = `${plane}:${appId}:account:${row.id}`
    const created = await processor.createAccount(plane, { reference: appId, email }, key)
    if (!(await store.saveAccountId(pool, row, created.id))) throw endedMeanwhile()
    return { ...row, account: created.id }
  }

  /** Stores the account's flags; ends the connection if its owner ended it at the processor. */
  async function reread(row: AppAccount, actor: Actor): Promise<void> {
    if (row.account === null || row.isEnded) return
    const [processor, at] = [requireProcessor(deps.processor), now()]
    const state = await processor.readAccount({ plane: row.plane, account: row.account })
    const details = { account: row.account, plane: row.plane }
    const note = (action: string): Promise<void> =>
      auditSuccess(pool, { appId: row.appId, actor, action, details, at })
    if (state === null) {
      if (!(await store.endAccount(pool, row, at))) return
      await note('processor_disconnected')
      await deps.onChange(row.appId)
      return
    }
    const saved = await store.saveState(pool, row, { state, at })
    if (!saved || statusOf(saved) === statusOf(row)) return
    await note(`processor_${statusOf(saved)}`)
    await deps.onChange(row.appId)
  }

  return { open, reread }
}

const endedMeanwhile = (): DomainError =>
  new DomainError('CONFLICT', 'the app was disconnected meanwhile; connect again')

function requireProcessor(processor: PaymentProcessor | null): PaymentProcessor {
  if (processor !== null) return processor
  throw new DomainError(
    'PROCESSOR_NOT_CONFIGURED',
    'this deployment has no payment processor, so no account can be connected',
  )
}

const none = {
  status: 'disconnected',
  connectedAt: null,
  chargesEnabled: false,
  payoutsEnabled: false,
  detailsSubmitted: false,
} as const

// Without details the processor may withdraw the right to charge. Payouts are not needed to sell.
function statusOf({ account, chargesEnabled, detailsSubmitted }: AppAccount) {
  if (account === null) return 'disconnected'
  return chargesEnabled && detailsSubmitted ? 'connected' : 'pending'
}

const toConnection = (account: AppAccount): Connection => ({
  status: statusOf(account),
  plane: account.plane,
  connectedAt: account.connectedAt,
  chargesEnabled: account.chargesEnabled,
  payoutsEnabled: account.payoutsEnabled,
  detailsSubmitted: account.detailsSubmitted,
})
