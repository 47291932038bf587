import type * as pb from '../../proto/gen/ts-proto/tollgate/shared/v1/settings.ts'
import { type OwnSettings, redactSettings } from '../lib/settings/redacted.ts'
import { platformAdmin } from '../rpc/guards.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'

/** Settings of a core that its starter did not name. */
const noSettings: OwnSettings = { process: 'core', list: () => [] }

/** The settings of this core, for platform admins. */
export function createSettingsRpc({ process, list }: OwnSettings = noSettings) {
  const settingService: Handlers<pb.SettingServiceServer> = {
    listSettings: rpc(platformAdmin(), async (_request: pb.ListSettingsRequest) => ({
      process,
      settings: redactSettings(list()),
    })),
  }
  return { settingService }
}
