import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operatorHeader, serviceTokenHeader } from '../../../proto/headers.ts'
import { type TestCore, serviceToken, startTestCore } from '../support.ts'
import { audited } from './audited.ts'
import { callEmpty, methods, streamEmpty } from './contract.ts'

let core: TestCore
beforeAll(async () => {
  core = await startTestCore({ PAYMENT_PROCESSOR: 'simulated' })
})
afterAll(() => core.stop())

const nameOf = ({ name }: (typeof methods)[number]): string => name.replace('tollgate.', '')

const call = (method: (typeof methods)[number], headers: Readonly<Record<string, string>> = {}) =>
  (method.streams ? streamEmpty : callEmpty)(
    { target: core.core.target, service: method.service, method: method.method },
    // Ends a stream that would otherwise stay open.
    { [serviceTokenHeader]: serviceToken, 'grpc-timeout': '5S', ...headers },
  )

const operatorCalls = async () =>
  (
    await core.sql.query<{ rpc: string; actor: string; status: string; refusal: string | null }>(
      `select details ->> 'rpc' as rpc, actor, status, details ->> 'refusal' as refusal
       from audit_log where action = 'operator_command' order by created_at, id`,
    )
  ).rows

describe('the audit log', () => {
  it('has a rule for every RPC', () => {
    expect(Object.keys(audited).toSorted()).toEqual(methods.map(nameOf).toSorted())
  })

  it('has an entry for each changing call of an operator, and for no other call', async () => {
    const expected: unknown[] = []
    for (const method of methods) {
      await core.sql.query('delete from audit_log')
      const { reason } = await call(method, { [operatorHeader]: 'gr%C3%A1ce%40bastion-1' })
      const entries = await operatorCalls()
      const rule = audited[nameOf(method)]
      const isOperators = typeof rule === 'object' && 'operator' in rule
      expected.push(...(isOperators ? [nameOf(method)] : []))
      expect(entries).toEqual(
        isOperators
          ? [
              {
                rpc: method.name,
                actor: 'operator:gráce@bastion-1',
                status: reason === undefined ? 'success' : 'refused',
                refusal: reason?.toLowerCase() ?? null,
              },
            ]
          : [],
      )
    }
    expect(expected.length).toBeGreaterThan(20)
  }, 60_000)

  it('ignores a malformed operator name', async () => {
    const retry = methods.find(({ method }) => method === 'RetryOutbox')
    if (!retry) throw new Error('RetryOutbox is missing')
    for (const name of ['', '%', 'a b', 'x%0Ay', 'x%E2%80%AEy', 'a'.repeat(200)]) {
      await core.sql.query('delete from audit_log')
      await call(retry, { [operatorHeader]: name })
      expect((await operatorCalls()).map(({ actor }) => actor)).toEqual(['operator'])
    }
  })
})
