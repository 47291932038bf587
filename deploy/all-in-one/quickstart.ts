import type { CoreAddress } from '../../core/lib/core-link/address.ts'
import { newSecret } from '../../core/lib/crypto.ts'
import { DomainError, type Reason } from '../../proto/errors.ts'
import { basic, type CoreClient, connectCore } from '../cli/client.ts'
import { type Quickstart, readQuickstart, writeQuickstart } from '../local/data-dir.ts'

export type Addresses = Pick<
  Quickstart,
  'platformUrl' | 'builderUrl' | 'edgeUrl' | 'sidecarUrl' | 'adminUrl' | 'issuer' | 'coreTarget'
>

export interface QuickstartRequest {
  readonly dataDir: string
  /** Connection of an operator's command to core; `addresses` contains the target. */
  readonly operator: CoreAddress
  /** Connection of the gateway to core, used to set passwords. */
  readonly gateway: CoreAddress
  readonly webhookSecret: string
  readonly addresses: Addresses
  readonly database: Quickstart['database']
}

type DemoApp = Pick<
  Quickstart,
  'clientId' | 'm2mClientId' | 'm2mClientSecret' | 'ownerEmail' | 'ownerPassword'
>

/**
 * Writes the quickstart file. A database has one demo app: the one in the file, or in an earlier
 * file. Replaces credentials that no longer work; creates an app only if there is no demo app.
 */
export async function ensureQuickstart({
  dataDir,
  operator,
  gateway,
  webhookSecret,
  addresses,
  database,
}: QuickstartRequest): Promise<Quickstart> {
  const target = addresses.coreTarget
  const core = connectCore({ ...operator, target })
  const pages = connectCore({ ...gateway, target })
  try {
    const previous = await readQuickstart(dataDir)
    const app =
      (previous && (await renewDemoApp(core, demoAppOf(previous)))) ??
      // Another data directory may use the same external database: keep its demo app unchanged.
      (database === 'embedded' ? await findDemoApp({ core, pages }) : null) ??
      (await createDemoApp(core))
    // Make the operator of a single-process service its platform admin.
    await core.accounts
      .updateAccount({ ...nobody, email: app.ownerEmail, isPlatformAdmin: true })
      // The account has another address now; keep its rights unchanged.
      .catch(unless('NOT_FOUND'))
    await ownByPlatform(core, app)
    const quickstart = { ...addresses, ...app, webhookSecret, database }
    await writeQuickstart(dataDir, quickstart)
    return quickstart
  } finally {
    core.close()
    pages.close()
  }
}

/** Makes the app platform-owned, so that its owner needs no card to try it (decision 55). */
async function ownByPlatform(core: CoreClient, { clientId }: DemoApp): Promise<void> {
  const { settings } = await core.billing.getBillingSettings({ clientId })
  if (settings?.isPlatformOwned) return
  const unchanged = {
    billingMode: undefined,
    endUserCap: undefined,
    servesEveryApp: undefined,
    platformCutPercent: undefined,
  }
  await core.billing.updateBillingSettings({ ...unchanged, clientId, isPlatformOwned: true })
}

const nobody = { id: undefined, newEmail: undefined }

const demoAppOf = (file: Quickstart): DemoApp => ({
  clientId: file.clientId,
  m2mClientId: file.m2mClientId,
  m2mClientSecret: file.m2mClientSecret,
  ownerEmail: file.ownerEmail,
  ownerPassword: file.ownerPassword,
})

/** Returns the app with a working secret; null when the database has no such app. */
async function renewDemoApp(core: CoreClient, app: DemoApp): Promise<DemoApp | null> {
  const { clientId } = app
  const authorization = basic(app.m2mClientId, app.m2mClientSecret)
  const works = await core.callers
    .checkCaller({ clientId, kind: 'm2m_basic', scope: undefined }, { authorization })
    .then(() => true, unless('CREDENTIAL_INVALID', 'NOT_FOUND'))
  if (works) return app
  const known = await core.management.getApp({ clientId }).catch(unless('NOT_FOUND'))
  return known ? { ...app, ...(await replaceSecret(core, clientId)) } : null
}

/**
 * Creates a new secret. Older secrets end after the overlap, or immediately if there are too many;
 * API keys stay valid.
 */
async function replaceSecret(core: CoreClient, clientId: string) {
  const rotate = (revokeOld: boolean) =>
    core.management.rotateClientSecret({ clientId, revokeOld, keepKeys: true })
  const rotated = (await rotate(false).catch(unless('CONFLICT'))) || (await rotate(true))
  return { m2mClientId: rotated.m2mClientId, m2mClientSecret: rotated.clientSecret }
}

const demoName = 'Demo'
/** The demo app is among the oldest of its database. */
const appsMax = 100

/**
 * Finds the demo app of a database whose quickstart file was lost, and replaces its secret and its
 * owner's password. Returns null without a demo app.
 */
async function findDemoApp({
  core,
  pages,
}: Readonly<Record<'core' | 'pages', CoreClient>>): Promise<DemoApp | null> {
  const { apps } = await core.apps.listApps({ limit: appsMax, cursor: undefined })
  for (const { clientId } of apps.filter(({ name }) => name === demoName)) {
    const { members } = await core.management.listMembers({ clientId })
    const owner = members.find(({ email, role }) => role === 'owner' && isDemoOwner(email))
    if (!owner) continue
    const ownerPassword = newSecret('').slice(0, 20)
    const { token } = await core.accounts.startPasswordReset({ email: owner.email })
    await pages.accounts.resetPassword({ token, password: ownerPassword })
    const secret = await replaceSecret(core, clientId)
    return { clientId, ...secret, ownerEmail: owner.email, ownerPassword }
  }
  return null
}

const isDemoOwner = (email: string): boolean => /^owner-[0-9a-z]+@demo\.localhost$/.test(email)

/** Turns a rejection with one of these reasons into false. */
const unless =
  (...reasons: readonly Reason[]) =>
  (error: unknown): false => {
    if (error instanceof DomainError && reasons.includes(error.reason)) return false
    throw error
  }

async function createDemoApp(core: CoreClient): Promise<DemoApp> {
  const ownerEmail = `owner-${Date.now().toString(36)}@demo.localhost`
  const app = await core.apps.createApp({
    name: demoName,
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
