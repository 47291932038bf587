import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { credentials } from '@grpc/grpc-js'
import { deriveCsrfToken } from '../../../core/identity/accounts/sessions.ts'
import { unary } from '../../../core/lib/grpc.ts'
import { correlationHeader, serviceTokenHeader, sessionHeader } from '../../../proto/headers.ts'
import * as accounts from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import * as issuers from '../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import * as management from '../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import * as keys from '../../../proto/gen/ts-proto/tollgate/keys/v1/keys.ts'
import * as signers from '../../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import * as plans from '../../../proto/gen/ts-proto/tollgate/plans/v1/plans.ts'
import * as catalog from '../../../proto/gen/ts-proto/tollgate/plans/v1/catalog.ts'
import { registerSecret } from '../run/secrecy.ts'
import { type TestApp, type TestCore, serviceToken } from '../../core/support.ts'

export interface Person {
  readonly accountId: string
  readonly email: string
  /** Session token, as in the cookie. */
  readonly token: string
  readonly csrf: string
}

/** Creates a person with an account and a session. */
export async function logIn(
  core: TestCore,
  options: { isPlatformAdmin?: boolean } = {},
): Promise<Person> {
  const token = registerSecret(randomBytes(32).toString('base64url'))
  const person = {
    accountId: randomUUID(),
    email: `${randomUUID()}@example.com`,
    csrf: deriveCsrfToken(token),
    token,
  }
  const at = core.clock.now()
  await core.sql.query(
    'insert into accounts (id, email, name, is_platform_admin, created_at) values ($1, $2, $3, $4, $5)',
    [person.accountId, person.email, 'Somebody', options.isPlatformAdmin ?? false, at],
  )
  await core.sql.query(
    `insert into web_sessions (token_hash, account_id, csrf_token, auth_time, created_at, last_seen_at, expires_at,
                               login_generation)
     values ($1, $2, $3, $4, $4, $4, $5, 0)`,
    [
      createHash('sha256').update(person.token).digest(),
      person.accountId,
      createHash('sha256').update(person.csrf).digest('hex'),
      at,
      new Date(at.getTime() + 80 * 86_400_000),
    ],
  )
  return person
}

/** Creates a person with an account, a session and a role in the app. */
export async function logInTo(
  core: TestCore,
  app: Pick<TestApp, 'clientId'>,
  role: 'owner' | 'admin' | 'viewer',
): Promise<Person> {
  const person = await logIn(core)
  await core.sql.query(
    `insert into members (app_id, account_id, role, created_at)
    select app_id, $2, $3, $4 from clients where client_id = $1`,
    [app.clientId, person.accountId, role, core.clock.now()],
  )
  return person
}

export type Managing = ReturnType<typeof manage>

/**
 * Returns every RPC that an app's people call, for this session or this client, or without a
 * credential.
 */
export function manage(
  core: Pick<TestCore, 'core'>,
  as: { session?: string; authorization?: string } = {},
) {
  const insecure = credentials.createInsecure()
  const apps = new management.ManagementServiceClient(core.core.target, insecure)
  const people = new accounts.AccountServiceClient(core.core.target, insecure)
  const profiles = new catalog.CatalogServiceClient(core.core.target, insecure)
  const offers = new plans.PlanServiceClient(core.core.target, insecure)
  const trust = new issuers.TrustedIssuerServiceClient(core.core.target, insecure)
  const appKeys = new keys.KeyServiceClient(core.core.target, insecure)
  const appSecrets = new signers.AppSecretServiceClient(core.core.target, insecure)
  const headers = {
    [serviceTokenHeader]: serviceToken,
    [correlationHeader]: 'test-1',
    ...(as.session === undefined ? {} : { [sessionHeader]: as.session }),
    ...(as.authorization === undefined ? {} : { authorization: as.authorization }),
  }
  const call =
    <Request extends object, Response>(
      empty: Request,
      method: Parameters<typeof unary<Request, Response>>[0],
    ) =>
    (request: Partial<Request> = {}): Promise<Response> =>
      unary(method)({ ...empty, ...request }, { deadlineMs: 15_000, headers })
  return {
    createApp: call(management.CreateOwnAppRequest.fromPartial({}), apps.createOwnApp.bind(apps)),
    listApps: call(management.ListOwnAppsRequest.fromPartial({}), apps.listOwnApps.bind(apps)),
    getApp: call(management.GetAppRequest.fromPartial({}), apps.getApp.bind(apps)),
    updateApp: call(management.UpdateAppRequest.fromPartial({}), apps.updateApp.bind(apps)),
    deleteApp: call(management.DeleteAppRequest.fromPartial({}), apps.deleteApp.bind(apps)),
    listMembers: call(management.ListMembersRequest.fromPartial({}), apps.listMembers.bind(apps)),
    upsertMember: call(
      management.UpsertMemberRequest.fromPartial({}),
      apps.upsertMember.bind(apps),
    ),
    deleteMember: call(
      management.DeleteMemberRequest.fromPartial({}),
      apps.deleteMember.bind(apps),
    ),
    withdrawInvitation: call(
      management.WithdrawInvitationRequest.fromPartial({}),
      apps.withdrawInvitation.bind(apps),
    ),
    listInvitations: call(
      accounts.ListInvitationsRequest.fromPartial({ sessionToken: as.session ?? '' }),
      people.listInvitations.bind(people),
    ),
    acceptInvitation: call(
      accounts.AcceptInvitationRequest.fromPartial({ sessionToken: as.session ?? '' }),
      people.acceptInvitation.bind(people),
    ),
    declineInvitation: call(
      accounts.DeclineInvitationRequest.fromPartial({ sessionToken: as.session ?? '' }),
      people.declineInvitation.bind(people),
    ),
    rotateSecret: call(
      management.RotateClientSecretRequest.fromPartial({}),
      apps.rotateClientSecret.bind(apps),
    ),
    listTrustedIssuers: call(
      issuers.ListTrustedIssuersRequest.fromPartial({}),
      trust.listTrustedIssuers.bind(trust),
    ),
    createTrustedIssuer: call(
      issuers.CreateTrustedIssuerRequest.fromPartial({}),
      trust.createTrustedIssuer.bind(trust),
    ),
    updateTrustedIssuer: call(
      issuers.UpdateTrustedIssuerRequest.fromPartial({}),
      trust.updateTrustedIssuer.bind(trust),
    ),
    deleteTrustedIssuer: call(
      issuers.DeleteTrustedIssuerRequest.fromPartial({}),
      trust.deleteTrustedIssuer.bind(trust),
    ),
    checkForeignToken: call(
      issuers.CheckForeignTokenRequest.fromPartial({}),
      trust.checkForeignToken.bind(trust),
    ),
    listDomains: call(management.ListDomainsRequest.fromPartial({}), apps.listDomains.bind(apps)),
    createDomain: call(
      management.CreateDomainRequest.fromPartial({}),
      apps.createDomain.bind(apps),
    ),
    deleteDomain: call(
      management.DeleteDomainRequest.fromPartial({}),
      apps.deleteDomain.bind(apps),
    ),
    checkOrigin: call(management.CheckOriginRequest.fromPartial({}), apps.checkOrigin.bind(apps)),
    listAudit: call(
      management.ListAuditEntriesRequest.fromPartial({}),
      apps.listAuditEntries.bind(apps),
    ),
    getRouting: call(management.GetRoutingRequest.fromPartial({}), apps.getRouting.bind(apps)),
    getManifest: call(
      catalog.GetManifestRequest.fromPartial({}),
      profiles.getManifest.bind(profiles),
    ),
    updateManifest: call(
      catalog.UpdateManifestRequest.fromPartial({}),
      profiles.updateManifest.bind(profiles),
    ),
    listProfiles: call(
      catalog.ListProfilesRequest.fromPartial({}),
      profiles.listProfiles.bind(profiles),
    ),
    getProfile: call(catalog.GetProfileRequest.fromPartial({}), profiles.getProfile.bind(profiles)),
    createProfile: call(
      catalog.CreateProfileRequest.fromPartial({}),
      profiles.createProfile.bind(profiles),
    ),
    updateProfile: call(
      catalog.UpdateProfileRequest.fromPartial({}),
      profiles.updateProfile.bind(profiles),
    ),
    deleteProfile: call(
      catalog.DeleteProfileRequest.fromPartial({}),
      profiles.deleteProfile.bind(profiles),
    ),
    listPlans: call(plans.ListPlansRequest.fromPartial({}), offers.listPlans.bind(offers)),
    createPlan: call(plans.CreatePlanRequest.fromPartial({}), offers.createPlan.bind(offers)),
    updatePlan: call(plans.UpdatePlanRequest.fromPartial({}), offers.updatePlan.bind(offers)),
    deletePlan: call(plans.DeletePlanRequest.fromPartial({}), offers.deletePlan.bind(offers)),
    createKey: call(keys.CreateAppKeyRequest.fromPartial({}), appKeys.createAppKey.bind(appKeys)),
    listKeys: call(keys.ListAppKeysRequest.fromPartial({}), appKeys.listAppKeys.bind(appKeys)),
    revokeKey: call(keys.RevokeAppKeyRequest.fromPartial({}), appKeys.revokeAppKey.bind(appKeys)),
    createSignerSecret: call(
      signers.CreateAppSecretRequest.fromPartial({}),
      appSecrets.createAppSecret.bind(appSecrets),
    ),
    listSignerSecrets: call(
      signers.ListAppSecretsRequest.fromPartial({}),
      appSecrets.listAppSecrets.bind(appSecrets),
    ),
    revokeSignerSecret: call(
      signers.RevokeAppSecretRequest.fromPartial({}),
      appSecrets.revokeAppSecret.bind(appSecrets),
    ),
    validateKey: call(keys.ValidateKeyRequest.fromPartial({}), appKeys.validateKey.bind(appKeys)),
  }
}
