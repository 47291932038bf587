import type { CoreAddress } from '../../core/lib/core-link/address.ts'
import { DomainError } from '../../proto/errors.ts'
import { basic, type CoreClient, connectCore } from '../cli/client.ts'
import { type Quickstart, readQuickstart, writeQuickstart } from './data-dir.ts'

export type Addresses = Pick<
  Quickstart,
  'platformUrl' | 'builderUrl' | 'edgeUrl' | 'sidecarUrl' | 'adminUrl' | 'issuer' | 'coreTarget'
>

export interface QuickstartRequest {
  readonly dataDir: string
  /** How an operator's command reaches core; its target is that of `addresses`. */
  readonly operator: CoreAddress
  readonly webhookSecret: string
  readonly addresses: Addresses
  readonly database: Quickstart['database']
}

type DemoApp = Pick<
  Quickstart,
  'clientId' | 'm2mClientId' | 'm2mClientSecret' | 'ownerEmail' | 'ownerPassword'
>

/**
 * Writes the quickstart file. The demo app of an earlier start stays while its credentials work in this database;
 * otherwise a new one is created.
 */
export async function ensureQuickstart({
  dataDir,
  operator,
  webhookSecret,
  addresses,
  database,
}: QuickstartRequest): Promise<Quickstart> {
  const core = connectCore({ ...operator, target: addresses.coreTarget })
  try {
    const previous = await readQuickstart(dataDir)
    const isUsable = previous !== null && (await works(core, previous))
    const app = isUsable ? demoAppOf(previous) : await createDemoApp(core)
    // The one who runs everything in one process is its platform admin.
    await core.changeAccount({ ...nobody, email: app.ownerEmail, isPlatformAdmin: true })
    await ownByPlatform(core, app)
    const quickstart = { ...addresses, ...app, webhookSecret, database }
    await writeQuickstart(dataDir, quickstart)
    return quickstart
  } finally {
    core.close()
  }
}

/** Its owner needs no card to try it (decision 55). */
async function ownByPlatform(core: CoreClient, { clientId }: DemoApp): Promise<void> {
  const { settings } = await core.readBillingSettings({ clientId })
  if (settings?.isPlatformOwned) return
  const unchanged = { billingMode: undefined, endUserCap: undefined, platformCutPercent: undefined }
  await core.replaceBillingSettings({ ...unchanged, clientId, isPlatformOwned: true })
}

const nobody = { id: undefined, newEmail: undefined }

const demoAppOf = (file: Quickstart): DemoApp => ({
  clientId: file.clientId,
  m2mClientId: file.m2mClientId,
  m2mClientSecret: file.m2mClientSecret,
  ownerEmail: file.ownerEmail,
  ownerPassword: file.ownerPassword,
})

async function works(core: CoreClient, app: DemoApp): Promise<boolean> {
  const authorization = basic(app.m2mClientId, app.m2mClientSecret)
  return core
    .checkCaller({ clientId: app.clientId, kind: 'm2m_basic', scope: undefined }, authorization)
    .then(
      () => true,
      (error: unknown) => {
        if (
          error instanceof DomainError &&
          (error.reason === 'CREDENTIAL_INVALID' || error.reason === 'NOT_FOUND')
        )
          return false
        throw error
      },
    )
}

async function createDemoApp(core: CoreClient): Promise<DemoApp> {
  const ownerEmail = `owner-${Date.now().toString(36)}@demo.localhost`
  const app = await core.createApp({
    name: 'Demo',
    ownerEmail,
    ownerPassword: undefined,
    starterUsdMicros: undefined,
  })
  return {
    clientId: app.clientId,
    m2mClientId: app.m2mClientId,
    m2mClientSecret: app.m2mClientSecret,
    ownerEmail,
    ownerPassword: app.ownerPassword ?? '',
  }
}
