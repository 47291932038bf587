import { hash } from 'node:crypto'
import {
  type Metadata,
  type ServerInterceptor,
  ServerInterceptingCall,
  type ServerMethodDefinition,
} from '@grpc/grpc-js'
import { operatorHeader, serviceTokenHeader } from '../../proto/headers.ts'
import { DomainError } from '../../proto/errors.ts'
import { type ServiceRole, type ServiceTokens, serviceRoles } from '../lib/core-link/address.ts'
import { type Reloadable, deriveLive } from '../lib/settings/reloadable.ts'
import { type Admission, type Refusal, readMetadata } from './serve.ts'

export interface AdmissionDeps {
  readonly rolesOf: RoleCheck
  /**
   * Keyed by path without the leading slash. RPCs without an entry are open to anyone who reaches
   * the port.
   */
  readonly admissions: ReadonlyMap<string, Admission>
  refuseUnread(error: unknown, path: string, metadata: Metadata): Refusal
}

/**
 * Decides about each call by its metadata, before its message is read. Callers without a token, or
 * whose role lacks the RPC, cannot make core hold megabytes in memory.
 */
export function createAdmission(deps: AdmissionDeps): ServerInterceptor {
  const { admissions, refuseUnread, rolesOf } = deps

  function requireRole(admission: Admission, metadata: Metadata): void {
    const token = readMetadata(metadata, serviceTokenHeader)
    const roles = token === undefined ? undefined : rolesOf(token)
    if (!roles)
      throw new DomainError(
        'SERVICE_TOKEN_INVALID',
        'the service token (CORE_TOKEN or CORE_TOKEN_<ROLE>) is missing or wrong',
      )
    if (admission.roles.some((role) => roles.has(role))) return
    throw new DomainError(
      'SERVICE_ROLE_FORBIDDEN',
      `this RPC is for ${admission.roles.join(' and ')}, and the token is that of ${[...roles].join(' and ')}`,
    )
  }

  return ({ path }: ServerMethodDefinition<unknown, unknown>, call) => {
    const name = path.slice(1)
    const admission = admissions.get(name)
    if (!admission) return new ServerInterceptingCall(call)
    return new ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMetadata: (metadata, proceed) => {
            try {
              requireRole(admission, metadata)
            } catch (error) {
              return call.sendStatus(refuseUnread(error, name, metadata).reply)
            }
            proceed(metadata)
          },
        }),
    })
  }
}

/** Returns the roles of a token; undefined for an unknown token. */
export type RoleCheck = (token: string) => ReadonlySet<ServiceRole> | undefined

/** Compares hashes, so that timing reveals nothing about a token. */
export function createRoleCheck(tokens: Reloadable<ServiceTokens>): RoleCheck {
  const roles = deriveLive(tokens, rolesByDigest)
  return (token) => roles().get(digestOf(token))
}

function rolesByDigest(tokens: ServiceTokens): ReadonlyMap<string, ReadonlySet<ServiceRole>> {
  const roles = new Map<string, Set<ServiceRole>>()
  for (const role of serviceRoles)
    for (const token of tokens[role]) {
      const digest = digestOf(token)
      roles.set(digest, (roles.get(digest) ?? new Set()).add(role))
    }
  return roles
}

/**
 * Creates the function that separates the calls of operators' commands and internal services, which
 * carry no credential of an app, from the gateway's, for RPCs that serve both. A token that is also
 * the gateway's is an operator's only with an operator's name, which the gateway never sends. Thus
 * a request without credentials never gets operators' rights.
 */
export const createOperatorCheck =
  (rolesOf: RoleCheck) =>
  (metadata: Metadata, roles: readonly ServiceRole[]): boolean => {
    const own = roles.filter((role) => role === 'operator' || role === 'service')
    if (own.length === 0) return false
    if (!roles.includes('gateway')) return true
    const held = rolesOf(readMetadata(metadata, serviceTokenHeader) ?? '')
    if (!held || !own.some((role) => held.has(role))) return false
    return !held.has('gateway') || readMetadata(metadata, operatorHeader) !== undefined
  }

const digestOf = (token: string): string => hash('sha256', token, 'base64')
