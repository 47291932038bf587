import { currentValue } from '../../../core/lib/settings/reloadable.ts'
import { join } from 'node:path'
import { Metadata } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createEnvReader } from '../../../core/lib/env.ts'
import {
  type ServiceRole,
  readCoreAddress,
  readServiceTokens,
  serviceRoles,
} from '../../../core/lib/core-link/address.ts'
import { createOperatorCheck } from '../../../core/rpc/admission.ts'
import { operatorHeader, serviceTokenHeader } from '../../../proto/headers.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type TestCore, startTestCore } from '../support.ts'
import { callEmpty, methods, streamEmpty } from './contract.ts'

const tokenOf = (role: ServiceRole): string =>
  registerSecret(`token-of-the-${role}-0123456789-abcdefghij`)
const settings = Object.fromEntries(
  serviceRoles.map((role) => [`CORE_TOKEN_${role.toUpperCase()}`, tokenOf(role)]),
)
const page = join(import.meta.dirname, '../../../docs/rpc-roles.md')

let core: TestCore
beforeAll(async () => {
  core = await startTestCore({ CORE_TOKEN: '', PAYMENT_PROCESSOR: 'simulated', ...settings })
})
afterAll(() => core.stop())

async function rolesOf({ service, method, streams }: (typeof methods)[number]): Promise<string[]> {
  const call = streams ? streamEmpty : callEmpty
  const roles: string[] = []
  for (const role of serviceRoles) {
    const { reason } = await call(
      { target: core.core.target, service, method },
      // Ends a stream that would otherwise stay open.
      { [serviceTokenHeader]: tokenOf(role), 'grpc-timeout': '1S' },
    )
    expect(reason).not.toBe('SERVICE_TOKEN_INVALID')
    if (reason !== 'SERVICE_ROLE_FORBIDDEN') roles.push(role)
  }
  return roles
}

describe('a role', () => {
  it('calls exactly the RPCs of docs/rpc-roles.md', { timeout: 120_000 }, async () => {
    const rows: string[] = []
    for (const method of methods) {
      const roles = await rolesOf(method)
      expect(roles).not.toEqual([])
      const marks = serviceRoles.map((role) => (roles.includes(role) ? 'yes' : ''))
      rows.push(`| ${method.name.replace('tollgate.', '')} | ${marks.join(' | ')} |`)
    }
    await expect(pageOf(rows.toSorted())).toMatchFileSnapshot(page)
  })
})

describe('an RPC of members and operators', () => {
  async function reasonOf(headers: Readonly<Record<string, string>>) {
    const read = methods.find(({ name }) => name.endsWith('LimitService/GetLimits'))
    if (!read) throw new Error('GetLimits is missing')
    const { service, method } = read
    return (await callEmpty({ target: core.core.target, service, method }, headers)).reason
  }
  const named = { [operatorHeader]: 'ada' }

  it('gives the gateway no rights of an operator, whatever name it sends', async () => {
    const gateway = { [serviceTokenHeader]: tokenOf('gateway') }
    expect(await reasonOf(gateway)).toBe('CREDENTIAL_INVALID')
    expect(await reasonOf({ ...gateway, ...named })).toBe('CREDENTIAL_INVALID')
  })

  it('serves an operator in any app, with or without a name', async () => {
    const operator = { [serviceTokenHeader]: tokenOf('operator') }
    expect(await reasonOf(operator)).toBe('NOT_FOUND')
    expect(await reasonOf({ ...operator, ...named })).toBe('NOT_FOUND')
  })

  it('takes a token of all roles as the gateway, except with the name of an operator', () => {
    const metadata = (headers: Readonly<Record<string, string>>) => {
      const sent = new Metadata()
      for (const [name, value] of Object.entries(headers)) sent.set(name, value)
      return sent
    }
    const isOperator = createOperatorCheck(() => new Set(serviceRoles))
    const token = { [serviceTokenHeader]: 'of all roles' }
    expect(isOperator(metadata(token), ['gateway', 'operator'])).toBe(false)
    expect(isOperator(metadata({ ...token, ...named }), ['gateway', 'operator'])).toBe(true)
    expect(isOperator(metadata(token), ['operator'])).toBe(true)
    expect(isOperator(metadata({ ...token, ...named }), ['gateway'])).toBe(false)
  })
})

const pageOf = (rows: readonly string[]): string => `# Which role calls which RPC

<!-- Compared with a running core by test/core/rpc/roles.test.ts; \`vitest -u\` writes it. -->

Every call to core carries the token of a role ([decision 54](decisions/54.md)); core refuses it before it reads the message
when the role has no mark here. Health checks (\`grpc.health.v1.Health\`) and reflection need no token: they tell what this
repository tells.

| RPC | ${serviceRoles.join(' | ')} |
|---${'|---'.repeat(serviceRoles.length)}|
${rows.join('\n')}
`

describe('service tokens', () => {
  const read = (env: Readonly<Record<string, string>>) => {
    const reader = createEnvReader(env)
    return { tokens: readServiceTokens(reader)(), ...reader }
  }
  const [one, other] = ['1'.repeat(32), '2'.repeat(32)]

  it('use CORE_TOKEN for all roles, with a warning outside embedded mode', () => {
    const { tokens, problems, warnings } = read({ CORE_TOKEN: one })
    expect(tokens).toEqual({
      gateway: [one],
      sidecar: [one],
      collector: [one],
      operator: [one],
      service: [one],
    })
    expect([problems, warnings]).toEqual([[], [expect.stringContaining('CORE_TOKEN_GATEWAY')]])
    const embedded = createEnvReader({ CORE_TOKEN: one }, { isEmbedded: true })
    readServiceTokens(embedded)
    expect(embedded.warnings).toEqual([])
  })

  it('of a role replace CORE_TOKEN and open only that role', () => {
    const { tokens, problems } = read({ CORE_TOKEN: one, CORE_TOKEN_SIDECAR: other })
    expect(tokens).toEqual({
      gateway: [one],
      sidecar: [other],
      collector: [one],
      operator: [one],
      service: [one],
    })
    expect(problems).toEqual([])
  })

  it('may be several during a replacement: core accepts all, a process sends the first', () => {
    const env = { CORE_TOKEN_SIDECAR: `${one},${other}` }
    expect(read(env).tokens.sidecar).toEqual([one, other])
    expect(currentValue(readCoreAddress(createEnvReader(env), 'sidecar').token)).toBe(one)
  })

  it.each([
    [{}, /^CORE_TOKEN must have at least 32 characters/],
    [{ CORE_TOKEN: 'short' }, /^CORE_TOKEN must have at least 32 characters/],
    [{ CORE_TOKEN_GATEWAY: 'short' }, /^CORE_TOKEN_GATEWAY must have at least 32/],
    [
      { CORE_TOKEN_GATEWAY: one, CORE_TOKEN_SIDECAR: one },
      /^CORE_TOKEN_GATEWAY and CORE_TOKEN_SIDECAR must differ/,
    ],
  ])('are rejected in %o', (env, problem) => {
    expect(read(env).problems).toEqual([expect.stringMatching(problem)])
  })

  it('name both settings when a process has no token', () => {
    const reader = createEnvReader({ CORE_TOKEN_GATEWAY: one })
    readCoreAddress(reader, 'sidecar')
    expect(reader.problems).toEqual([expect.stringMatching(/CORE_TOKEN .*CORE_TOKEN_SIDECAR/)])
  })
})
