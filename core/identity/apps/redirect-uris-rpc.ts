import { DomainError } from '../../../proto/errors.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/redirects.ts'
import { toActor } from '../../rpc/callers.ts'
import { appOperator, appOperatorWrite } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { RedirectUrisService, RedirectUse } from './redirect-uris.ts'

export function createRedirectUrisRpc({ redirectUris }: { redirectUris: RedirectUrisService }) {
  const redirectUriService: Handlers<pb.RedirectUriServiceServer> = {
    listRedirectUris: rpc(appOperator(), async (_: pb.ListRedirectUrisRequest, { appId }) => ({
      redirectUris: await redirectUris.list(appId),
    })),
    createRedirectUri: rpc(
      appOperatorWrite(),
      async (request: pb.CreateRedirectUriRequest, caller, context) => ({
        redirectUris: await redirectUris.add(
          caller.appId,
          parse(request),
          toActor(caller, context),
        ),
      }),
    ),
    deleteRedirectUri: rpc(
      appOperatorWrite(),
      async (request: pb.DeleteRedirectUriRequest, caller, context) => ({
        redirectUris: await redirectUris.remove(
          caller.appId,
          parse(request),
          toActor(caller, context),
        ),
      }),
    ),
  }
  return { redirectUriService }
}

const parse = ({ use, uri }: pb.CreateRedirectUriRequest) => ({ use: parseUse(use), uri })

function parseUse(text: string): RedirectUse {
  if (text === 'login' || text === 'logout') return text
  throw new DomainError('REQUEST_INVALID', 'use must be one of: login, logout')
}
