import { DecisionServiceService } from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import {
  AppSecretServiceService,
  SignersServiceService,
} from '../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import { SignerServiceService } from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import type { Ledger } from '../balances/ledger/ledger.ts'
import type { IdentityApi } from '../identity/module.ts'
import type { CredentialIssuer } from '../identity/types.ts'
import type { Keys } from '../keys/keys.ts'
import type { MeteringApi } from '../metering/module.ts'
import type { Shared } from '../shared/shared.ts'
import { grpcService } from '../rpc/serve.ts'
import type { TokensApi } from '../tokens/module.ts'
import { createDecisionRpc } from './decisions/rpc.ts'
import { createDecisions } from './decisions/service.ts'
import { createSignerRpc } from './rpc.ts'
import { createSigner } from './service.ts'
import { createOwnSecrets } from './signers/own-secrets.ts'
import { createAppSecretsRpc, createSignersRpc } from './signers/rpc.ts'
import { createSigners } from './signers/service.ts'
import { deleteOwnSigner } from './signers/store.ts'

export interface SignerOthers {
  readonly ledger: Ledger
  readonly metering: MeteringApi
  readonly identity: IdentityApi
  readonly keys: Keys
  readonly tokens: TokensApi
}

/** Deletes an app's own signer together with the app. Users have no signers. */
export const signerCredentials: CredentialIssuer = {
  endOfUser: async () => [],
  endOfApp: async (db, app) => {
    await deleteOwnSigner(db, app)
    return []
  },
}

/**
 * Services for sidecars: verification of credentials, access of users, signer secrets, and the
 * record of decisions.
 */
export function createSignerModule(
  shared: Shared,
  { ledger, metering, identity: { users, foreignTokens }, keys, tokens }: SignerOthers,
) {
  const { sessions, isVoidToken } = tokens
  const { usableRate } = metering
  const parts = { ledger, users, keys, sessions, foreignTokens }
  const signer = createSigner({ ...shared, ...parts, usableRate, isVoidToken })
  const { signerService } = createSignerRpc({ ...shared, signer })
  const decisions = createDecisions(shared)
  const signers = createSigners(shared)
  const ownSecrets = createOwnSecrets(shared)
  return {
    api: {},
    services: [
      grpcService(SignerServiceService, signerService),
      grpcService(SignersServiceService, createSignersRpc({ signers }).signersService),
      grpcService(AppSecretServiceService, createAppSecretsRpc({ ownSecrets }).appSecretService),
      grpcService(DecisionServiceService, createDecisionRpc({ decisions }).decisionService),
    ],
    upkeep: [decisions.deleteOld],
  }
}
