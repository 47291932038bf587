import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import { addSeconds } from '../../lib/time.ts'
import {
  type MemberCaller,
  member,
  operator,
  operatorActor,
  operatorWrite,
} from '../../rpc/callers.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import type { Clients } from '../apps/clients.ts'
import type { ForeignTokens } from './foreign-tokens.ts'
import type { IssuerEditor, Issuers } from './issuers.ts'
import { parseRules } from './rules.ts'
import type { TrustedIssuer } from './store.ts'

export interface IssuersRpcDeps {
  readonly issuers: Issuers
  readonly foreignTokens: Pick<ForeignTokens, 'check'>
  readonly clients: Pick<Clients, 'appOf'>
  readonly ownIssuer: string
  /** Maximum time that other processes' caches may still allow what has ended. */
  readonly revocationBoundSeconds: number
}

/** RPCs about trusted issuers, for members of an app and for operators. */
export function createIssuersRpc(deps: IssuersRpcDeps) {
  const { issuers, foreignTokens, ownIssuer, revocationBoundSeconds } = deps
  const effectiveBy = (at: Date): string => addSeconds(at, revocationBoundSeconds).toISOString()

  const trustedIssuerService: Handlers<pb.TrustedIssuerServiceServer> = {
    listTrustedIssuers: rpc(member('read'), async (_: pb.ListTrustedIssuersRequest, caller) => ({
      issuers: (await issuers.list(caller.appId)).map(render),
    })),
    addTrustedIssuer: rpc(
      member('edit'),
      async ({ rules }: pb.AddTrustedIssuerRequest, caller, context) => ({
        issuer: render(await issuers.add(editorOf(caller, context), parseRules(rules, ownIssuer))),
      }),
    ),
    replaceTrustedIssuer: rpc(
      member('edit'),
      async ({ id, rules }: pb.ReplaceTrustedIssuerRequest, caller, context) => {
        const editor = editorOf(caller, context)
        const issuer = await issuers.replace(editor, id, parseRules(rules, ownIssuer))
        return { issuer: render(issuer), effectiveBy: effectiveBy(issuer.updatedAt) }
      },
    ),
    removeTrustedIssuer: rpc(
      member('edit'),
      async ({ id }: pb.RemoveTrustedIssuerRequest, caller, context) => ({
        effectiveBy: effectiveBy(await issuers.remove(editorOf(caller, context), id)),
      }),
    ),
    checkForeignToken: rpc(
      member('edit'),
      async ({ token }: pb.CheckForeignTokenRequest, { clientId }) => ({
        check: await checkOf(foreignTokens, token, clientId),
      }),
    ),
  }
  return { trustedIssuerService, operatorTrustedIssuerService: createOperatorHandlers(deps) }
}

function createOperatorHandlers({
  issuers,
  foreignTokens,
  clients,
  ownIssuer,
  revocationBoundSeconds,
}: IssuersRpcDeps): Handlers<pb.OperatorTrustedIssuerServiceServer> {
  const operatorEditor = async (clientId: string, context: Context): Promise<IssuerEditor> => ({
    appId: await clients.appOf(clientId),
    actor: operatorActor(context),
  })
  return {
    listAppTrustedIssuers: rpc(
      operator(),
      async ({ clientId }: pb.ListAppTrustedIssuersRequest) => ({
        issuers: (await issuers.list(await clients.appOf(clientId))).map(render),
      }),
    ),
    addAppTrustedIssuer: rpc(
      operatorWrite(),
      async ({ clientId, rules }: pb.AddAppTrustedIssuerRequest, _, context) => {
        const editor = await operatorEditor(clientId, context)
        return { issuer: render(await issuers.add(editor, parseRules(rules, ownIssuer))) }
      },
    ),
    removeAppTrustedIssuer: rpc(
      operatorWrite(),
      async ({ clientId, id }: pb.RemoveAppTrustedIssuerRequest, _, context) => {
        const at = await issuers.remove(await operatorEditor(clientId, context), id)
        return { effectiveBy: addSeconds(at, revocationBoundSeconds).toISOString() }
      },
    ),
    checkAppForeignToken: rpc(
      operator(),
      async ({ clientId, token }: pb.CheckAppForeignTokenRequest) => {
        await clients.appOf(clientId)
        return { check: await checkOf(foreignTokens, token, clientId) }
      },
    ),
  }
}

async function checkOf({ check }: Pick<ForeignTokens, 'check'>, token: string, clientId: string) {
  const { rules, warnings, ...rest } = await check(token.trim(), clientId)
  return { ...rest, rules: rules.map((outcome) => ({ ...outcome })), warnings: [...warnings] }
}

const editorOf = (
  { appId, accountId }: MemberCaller,
  { correlationId }: Context,
): IssuerEditor => ({
  appId,
  actor: { name: accountId, context: { correlationId } },
})

const render = (issuer: TrustedIssuer) => ({
  id: issuer.id,
  rules: {
    issuer: issuer.issuer,
    audiences: [...issuer.audiences],
    clientClaim: issuer.clientClaim ?? '',
    clientValues: [...issuer.clientValues],
    userClaim: issuer.userClaim,
    userPrefix: issuer.userPrefix,
    jwksUri: issuer.jwksUri ?? '',
  },
  createdAt: issuer.createdAt.toISOString(),
  updatedAt: issuer.updatedAt.toISOString(),
})
