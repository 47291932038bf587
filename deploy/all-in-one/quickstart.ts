import { DomainError } from '../../proto/errors.ts'
import { basic, type CoreClient, connectCore } from '../cli/client.ts'
import { type Quickstart, readQuickstart, writeQuickstart } from './data-dir.ts'

export type Addresses = Pick<
  Quickstart,
  'platformUrl' | 'builderUrl' | 'sidecarUrl' | 'adminUrl' | 'issuer' | 'coreTarget'
>

export interface QuickstartRequest {
  readonly dataDir: string
  readonly serviceToken: string
  readonly webhookSecret: string
  readonly addresses: Addresses
}

type DemoApp = Pick<
  Quickstart,
  'clientId' | 'm2mClientId' | 'm2mClientSecret' | 'ownerEmail' | 'ownerPassword'
>

/** Keeps the demo app of an earlier start while it still works in this database; otherwise makes one. Writes the file. */
export async function ensureQuickstart({
  dataDir,
  serviceToken,
  webhookSecret,
  addresses,
}: QuickstartRequest): Promise<Quickstart> {
  const core = connectCore({ target: addresses.coreTarget, token: serviceToken })
  try {
    const kept = await readQuickstart(dataDir)
    const app = kept && (await works(core, kept)) ? demoAppOf(kept) : await createDemoApp(core)
    const quickstart = { ...addresses, ...app, webhookSecret }
    await writeQuickstart(dataDir, quickstart)
    return quickstart
  } finally {
    core.close()
  }
}

const demoAppOf = (kept: Quickstart): DemoApp => ({
  clientId: kept.clientId,
  m2mClientId: kept.m2mClientId,
  m2mClientSecret: kept.m2mClientSecret,
  ownerEmail: kept.ownerEmail,
  ownerPassword: kept.ownerPassword,
})

async function works(core: CoreClient, kept: DemoApp): Promise<boolean> {
  const authorization = basic(kept.m2mClientId, kept.m2mClientSecret)
  return core
    .checkCaller({ clientId: kept.clientId, kind: 'm2m_basic', scope: undefined }, authorization)
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
