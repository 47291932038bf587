import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { DomainError } from '../../../proto/errors.ts'
import {
  type AppOperatorCaller,
  type MemberCaller,
  callerName,
  toActor,
} from '../../rpc/callers.ts'
import {
  appOperator,
  appOperatorWrite,
  m2mOrMember,
  member,
  orOperator,
  orSelf,
} from '../../rpc/guards.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import { audit } from '../../shared/audit.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Gate } from '../gate.ts'
import { toAdmission, toSettings } from '../messages.ts'
import type { BillingSettings } from '../settings.ts'
import type { Connections, Connector } from './connections.ts'
import { findFirstOwner } from './store.ts'

export interface ProcessorRpcDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly settings: BillingSettings
  readonly connections: Connections
  readonly gate: Gate
}

type ProcessorHandlers = Pick<
  Handlers<pb.BillingServiceServer>,
  | 'getProcessor'
  | 'connectProcessor'
  | 'completeProcessorConnection'
  | 'refreshProcessorConnection'
  | 'disconnectProcessor'
>

/** RPCs about an app's connection to the payment processor. */
export function createProcessorHandlers({
  pool,
  now,
  settings,
  connections,
  gate,
}: ProcessorRpcDeps): ProcessorHandlers {
  const note = (caller: MemberCaller | AppOperatorCaller, context: Context, action: string) =>
    audit(pool, {
      appId: caller.appId,
      actor: callerName(caller),
      action,
      status: 'success',
      correlationId: context.correlationId,
      at: now(),
    })

  /** The person who connects: the caller or, for an operator, the app's first owner. */
  async function toConnector(caller: MemberCaller | AppOperatorCaller): Promise<Connector> {
    if (caller.kind === 'member') return caller
    const owner = await findFirstOwner(pool, caller.appId)
    if (owner === null)
      throw new DomainError('CONFLICT', 'the app has no owner who could connect an account')
    return { appId: caller.appId, ...owner }
  }

  return {
    getProcessor: rpc(
      orOperator(orSelf(m2mOrMember()), appOperator()),
      async ({ clientId }: pb.GetProcessorRequest, { appId }) => {
        const { connectedAt, ...connection } = await connections.findConnection(pool, appId)
        const app = await settings.read(clientId)
        const { provisioning, selling } = await gate.read(appId, app)
        return {
          ...connection,
          connectedAt: connectedAt?.toISOString(),
          settings: toSettings(app),
          provisioning: toAdmission(provisioning),
          selling: toAdmission(selling),
          applicationFee: app.billingMode === 'merchant' ? 'owner_charge' : 'none',
          processor: connections.kind,
        }
      },
    ),
    connectProcessor: rpc(
      orOperator(member('own'), appOperatorWrite()),
      async (_: pb.ConnectProcessorRequest, caller, context) => {
        const { url } = await connections.connect(await toConnector(caller))
        await note(caller, context, 'processor_connection_started')
        return { url }
      },
    ),
    completeProcessorConnection: rpc(
      member('own'),
      async ({ state }: pb.CompleteProcessorConnectionRequest, caller, context) => {
        const { status } = await connections.complete(caller, state, toActor(caller, context))
        return { status }
      },
    ),
    refreshProcessorConnection: rpc(
      member('own'),
      async ({ state }: pb.RefreshProcessorConnectionRequest, caller, context) => {
        const { url } = await connections.refresh(caller, state)
        await note(caller, context, 'processor_connection_started')
        return { url }
      },
    ),
    disconnectProcessor: rpc(
      orOperator(member('own'), appOperatorWrite()),
      async (_: pb.DisconnectProcessorRequest, caller, context) => {
        await connections.disconnect(caller.appId)
        await note(caller, context, 'processor_disconnected')
        return {}
      },
    ),
  }
}
