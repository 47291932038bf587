import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { DomainError } from '../../proto/errors.ts'
import { readSession } from '../auth/session.ts'
import { requireField } from '../core/client.ts'
import type { App } from '../http/app.ts'
import { get, post } from '../http/endpoint.ts'
import { addSchemas, named, ref } from '../http/schemas.ts'
import { Email, Instant, oneOf } from './schemas.ts'

const url = '/api/v1/invitations'
const tags = ['session']
const guard = { kind: 'session' } as const

export const Invitation = named(
  Type.Object({
    id: Type.String(),
    clientId: Type.String({ description: 'The app.' }),
    appName: Type.String(),
    email: Email,
    role: oneOf(['owner', 'admin', 'viewer'], 'The role of the invitation.'),
    invitedBy: Type.String({ description: 'E-mail address of the inviting person.' }),
    createdAt: Instant('When it was created.'),
    expiresAt: Instant('When it ends.'),
  }),
  'Invitation',
)
const InvitationList = named(
  Type.Object({ invitations: Type.Array(ref(Invitation)) }),
  'InvitationList',
)
const InvitationParams = Type.Object({
  invitationId: Type.String({ description: 'The id of the invitation.' }),
})

/** Invitations of the logged-in person, for programs; people use a page. */
export function invitationRoutes(app: App, { publicUrl }: { publicUrl: string }): void {
  addSchemas(app, [InvitationList])
  const tokenOf: TokenOf = (request) => {
    const sessionToken = readSession(request, publicUrl)
    if (sessionToken === undefined) throw new DomainError('TOKEN_INVALID', 'log in first')
    return sessionToken
  }
  listInvitations(app, tokenOf)
  acceptInvitation(app, tokenOf)
  declineInvitation(app, tokenOf)
}

type TokenOf = (request: FastifyRequest) => string

function listInvitations(app: App, tokenOf: TokenOf): void {
  get({
    url,
    guard,
    operationId: 'listInvitations',
    summary: 'Invitations to you',
    description:
      'Lists the invitations that wait for your answer: to join an app, or to become its owner.',
    tags,
    response: { 200: ref(InvitationList) },
    handler: async (request) => {
      const sessionToken = tokenOf(request)
      return request.core.accounts.listInvitations({ sessionToken })
    },
  })(app)
}

function acceptInvitation(app: App, tokenOf: TokenOf): void {
  post({
    url: `${url}/:invitationId/accept`,
    guard,
    refuses: ['CONFLICT'],
    operationId: 'acceptInvitation',
    summary: 'Accept an invitation',
    description:
      'Makes you a member of the app. An app that you own counts toward your quota of apps.',
    tags,
    params: InvitationParams,
    response: { 200: ref(Invitation) },
    handler: async (request) => {
      const { invitationId } = request.params
      const answer = { sessionToken: tokenOf(request), invitationId }
      const { invitation } = await request.core.accounts.acceptInvitation(answer)
      return requireField(invitation, 'invitation')
    },
  })(app)
}

function declineInvitation(app: App, tokenOf: TokenOf): void {
  post({
    url: `${url}/:invitationId/decline`,
    guard,
    operationId: 'declineInvitation',
    summary: 'Decline an invitation',
    description: "Removes the invitation. The app's audit log records it.",
    tags,
    params: InvitationParams,
    response: { 200: ref(Invitation) },
    handler: async (request) => {
      const { invitationId } = request.params
      const answer = { sessionToken: tokenOf(request), invitationId }
      const { invitation } = await request.core.accounts.declineInvitation(answer)
      return requireField(invitation, 'invitation')
    },
  })(app)
}
