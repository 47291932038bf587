import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import { addSeconds } from '../../lib/time.ts'
import { type AppOperatorCaller, type MemberCaller, toActor } from '../../rpc/callers.ts'
import { appOperator, appOperatorWrite, member, orOperator } from '../../rpc/guards.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import type { ForeignTokens } from './foreign-tokens.ts'
import type { IssuerEditor, Issuers } from './issuers.ts'
import { parseRules } from './rules.ts'
import type { TrustedIssuer } from './store.ts'

export interface IssuersRpcDeps {
  readonly issuers: Issuers
  readonly foreignTokens: Pick<ForeignTokens, 'check'>
  readonly ownIssuer: string
  /** Maximum time that other processes' caches may still allow what has ended. */
  readonly revocationBoundSeconds: number
}

/** RPCs about trusted issuers, for members of an app and for operators. */
export function createIssuersRpc(deps: IssuersRpcDeps) {
  const { issuers, foreignTokens, ownIssuer, revocationBoundSeconds } = deps
  const effectiveBy = (at: Date): string => addSeconds(at, revocationBoundSeconds).toISOString()

  const reader = orOperator(member('read'), appOperator())
  const editor = orOperator(member('edit'), appOperatorWrite())
  const trustedIssuerService: Handlers<pb.TrustedIssuerServiceServer> = {
    listTrustedIssuers: rpc(reader, async (_: pb.ListTrustedIssuersRequest, { appId }) => ({
      issuers: (await issuers.list(appId)).map(render),
    })),
    createTrustedIssuer: rpc(
      editor,
      async ({ rules }: pb.CreateTrustedIssuerRequest, caller, context) => ({
        issuer: render(await issuers.add(editorOf(caller, context), parseRules(rules, ownIssuer))),
      }),
    ),
    updateTrustedIssuer: rpc(
      member('edit'),
      async ({ id, rules }: pb.UpdateTrustedIssuerRequest, caller, context) => {
        const issuer = await issuers.replace(
          editorOf(caller, context),
          id,
          parseRules(rules, ownIssuer),
        )
        return { issuer: render(issuer), effectiveBy: effectiveBy(issuer.updatedAt) }
      },
    ),
    deleteTrustedIssuer: rpc(
      editor,
      async ({ id }: pb.DeleteTrustedIssuerRequest, caller, context) => ({
        effectiveBy: effectiveBy(await issuers.remove(editorOf(caller, context), id)),
      }),
    ),
    checkForeignToken: rpc(
      orOperator(member('edit'), appOperator()),
      async ({ token }: pb.CheckForeignTokenRequest, { clientId }) => ({
        check: await checkOf(foreignTokens, token, clientId),
      }),
    ),
  }
  return { trustedIssuerService }
}

async function checkOf({ check }: Pick<ForeignTokens, 'check'>, token: string, clientId: string) {
  const { rules, warnings, ...rest } = await check(token.trim(), clientId)
  return { ...rest, rules: rules.map((outcome) => ({ ...outcome })), warnings: [...warnings] }
}

const editorOf = (caller: MemberCaller | AppOperatorCaller, context: Context): IssuerEditor => ({
  appId: caller.appId,
  actor: toActor(caller, context),
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
