import type * as pb from '../../../proto/gen/ts-proto/tollgate/tokens/v1/devices.ts'
import type { AccountCaller } from '../../rpc/callers.ts'
import { gatewayCaller } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Devices } from './devices.ts'

export interface DevicesRpcDeps {
  readonly devices: Devices
  /** Throws TOKEN_INVALID when the session has ended. */
  readonly accountBySession: (token: string) => Promise<AccountCaller>
}

export function createDevicesRpc({ devices, accountBySession }: DevicesRpcDeps) {
  const deviceService: Handlers<pb.DeviceServiceServer> = {
    startDevice: rpc(gatewayCaller(), async (request: pb.StartDeviceRequest) =>
      devices.start(request),
    ),
    getDevice: rpc(gatewayCaller(), async ({ sessionToken, userCode }: pb.GetDeviceRequest) => {
      await accountBySession(sessionToken)
      return devices.describe(userCode)
    }),
    decideDevice: rpc(
      gatewayCaller(),
      async ({ sessionToken, ...request }: pb.DecideDeviceRequest, _caller, context) => {
        const account = await accountBySession(sessionToken)
        return {
          status: await devices.decide(account, request, { name: account.accountId, context }),
        }
      },
    ),
  }
  return { deviceService }
}
