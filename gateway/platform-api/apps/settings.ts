import { Type } from 'typebox'
import { DomainError } from '../../../proto/errors.ts'
import { present } from '../../core/client.ts'
import type { App } from '../../http/listener.ts'
import {
  AddedDomain,
  AuditLog,
  ClientSecret,
  DomainList,
  SignerRouting,
  Success,
} from './schemas.ts'
import { AppParams, IdempotencyHeader, pageQuery, required, text } from '../request-schemas.ts'
import { route } from '../../http/route.ts'
import { oneOf, ref } from '../schemas.ts'
import { toDomain } from './apps.ts'

const base = '/api/v1/apps/:clientId'
const tags = ['apps']

/** Secrets, domains, the audit log and the signer's routing of an app (facts 4.5, 4.6, 9.2, 11.5). */
export function settingRoutes(app: App): void {
  credentialRoute(app)
  domainRoutes(app)
  auditRoute(app)
  routingRoute(app)
}

function credentialRoute(app: App): void {
  app.post(
    `${base}/credentials`,
    route(
      { guard: { kind: 'member_edit' }, refuses: ['CONFLICT'] },
      {
        summary: 'Make a new secret of the M2M client',
        tags,
        params: AppParams,
        headers: IdempotencyHeader,
        querystring: Type.Object({
          target: Type.Optional(
            oneOf(['m2m', 'public'], 'm2m; the public client never has a secret'),
          ),
          revokeOld: Type.Optional(oneOf(['true', 'false'], 'true ends the older secrets at once')),
        }),
        response: { 200: ref(ClientSecret) },
      },
    ),
    async ({ params, query: { target, revokeOld }, headers, core, correlationId }) => {
      if (target !== 'm2m')
        throw new DomainError(
          'REQUEST_INVALID',
          'target must be m2m: the public client never has a secret',
        )
      const made = await core.management.rotateSecret({
        ...params,
        revokeOld: revokeOld === 'true',
        idempotencyKey: headers['idempotency-key'],
      })
      return {
        clientId: made.m2mClientId,
        clientSecret: made.clientSecret,
        target,
        createdAt: made.createdAt,
        oldSecretsExpireAt: made.oldSecretsExpireAt,
        message: 'Store the secret now; it is not shown again.',
        correlation_id: correlationId,
      }
    },
  )
}

function domainRoutes(app: App): void {
  const url = `${base}/domains`
  app.get(
    url,
    route(
      { guard: { kind: 'member_read' } },
      {
        summary: 'List the origins that browsers may call from',
        tags,
        params: AppParams,
        response: { 200: ref(DomainList) },
      },
    ),
    async ({ params, core }) => {
      const { domains } = await core.management.listDomains(params)
      return { domains: domains.map(toDomain) }
    },
  )

  app.post(
    url,
    route(
      { guard: { kind: 'member_edit' }, refuses: ['CONFLICT'] },
      {
        summary: 'Add an origin',
        tags,
        params: AppParams,
        body: Type.Object(
          { domain: required('An https origin, or a host.') },
          { additionalProperties: false },
        ),
        response: { 201: ref(AddedDomain) },
      },
    ),
    async ({ params, body, core }, reply) => {
      const { domain } = await core.management.addDomain({ ...params, origin: body.domain })
      return reply.code(201).send(toDomain(present(domain, 'domain')))
    },
  )

  app.delete(
    url,
    route(
      { guard: { kind: 'member_edit' } },
      {
        summary: 'Remove an origin',
        tags,
        params: AppParams,
        querystring: Type.Object({ domainId: required('Which one.') }),
        response: { 200: ref(Success) },
      },
    ),
    async ({ params, query: { domainId }, core, correlationId }) => {
      await core.management.removeDomain({ ...params, id: domainId })
      return { success: true, correlation_id: correlationId }
    },
  )
}

function auditRoute(app: App): void {
  app.get(
    `${base}/audit`,
    route(
      { guard: { kind: 'member_edit' } },
      {
        summary: 'What was done to the app, newest first',
        tags,
        params: AppParams,
        querystring: Type.Object({ ...pageQuery, action: Type.Optional(text('only this action')) }),
        response: { 200: ref(AuditLog) },
      },
    ),
    async ({ params, query: { limit, ...filter }, core }) => {
      const { entries, nextCursor } = await core.management.listAudit({
        ...params,
        ...filter,
        limit: Number(limit ?? 0),
      })
      const shown = entries.map(
        ({ id, actor, action, status, correlationId, detailsJson, createdAt }) => ({
          id,
          actor,
          action,
          status,
          correlationId: correlationId ?? null,
          details: toDetails(detailsJson),
          createdAt,
        }),
      )
      return { entries: shown, ...(nextCursor === undefined ? {} : { nextCursor }) }
    },
  )
}

function toDetails(json: string): object {
  const value: unknown = JSON.parse(json)
  return typeof value === 'object' && value !== null ? value : {}
}

function routingRoute(app: App): void {
  app.get(
    `${base}/signer/routing`,
    route(
      { guard: { kind: 'm2m_or_member' } },
      {
        summary: 'Where to sign and how the signer is set up',
        tags,
        params: AppParams,
        response: { 200: ref(SignerRouting) },
      },
    ),
    async ({ params, core }) => {
      const { dmzUrl, jwksUrl, webhookUrl, meteringMode } = await core.management.getRouting(params)
      const flat = { dmzUrl, jwksUrl, webhookUrl, meteringMode }
      return {
        ...flat,
        clientId: params.clientId,
        routing: {
          signerApiUrl: dmzUrl,
          remoteDmzUrl: dmzUrl,
          jwksUri: jwksUrl,
          identityMode: 'webhook',
          meteringMode,
        },
        patterns: { directDmz: flat },
      }
    },
  )
}
