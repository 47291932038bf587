import { DecisionServiceService } from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import {
  OperatorSignerServiceService,
  OwnSignerServiceService,
  SignersServiceService,
} from '../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import { SignerServiceService } from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import type { Ledger } from '../allowances/ledger.ts'
import type { IdentityApi } from '../identity/module.ts'
import type { CredentialIssuer } from '../identity/types.ts'
import type { Keys } from '../keys/keys.ts'
import type { MeteringApi } from '../metering/module.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import type { TokensApi } from '../tokens/module.ts'
import { createDecisionRpc } from './decisions/rpc.ts'
import { createDecisions } from './decisions/service.ts'
import { createSignerRpc } from './rpc.ts'
import { createSigner } from './service.ts'
import { createOwnSecrets } from './signers/own-secrets.ts'
import { createOperatorSignerRpc, createOwnSignerRpc, createSignersRpc } from './signers/rpc.ts'
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
  { pool, now, invalidations, idempotency, stopping }: Platform,
  { ledger, metering, identity: { users, clients, foreignTokens }, keys, tokens }: SignerOthers,
) {
  const { sessions, isVoidToken } = tokens
  const { usableRate } = metering
  const parts = { ledger, users, keys, sessions, foreignTokens }
  const signer = createSigner({ ...parts, pool, usableRate, isVoidToken, now })
  const { signerService } = createSignerRpc({ signer, invalidations, stopping })
  const decisions = createDecisions({ pool, now })
  const signers = createSigners({ pool, invalidations, now })
  const ownSecrets = createOwnSecrets({ pool, idempotency, invalidations, now })
  return {
    api: {},
    services: [
      grpcService(SignerServiceService, signerService),
      grpcService(SignersServiceService, createSignersRpc({ signers }).signersService),
      grpcService(OwnSignerServiceService, createOwnSignerRpc({ ownSecrets }).ownSignerService),
      grpcService(
        OperatorSignerServiceService,
        createOperatorSignerRpc({ ownSecrets, appOf: clients.appOf }).operatorSignerService,
      ),
      grpcService(DecisionServiceService, createDecisionRpc({ decisions }).decisionService),
    ],
    upkeep: [decisions.deleteOld],
  }
}
