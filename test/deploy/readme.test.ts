import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { blocksOf, startApart, startMs } from './apart-support.ts'

/** The three paths of the README, as they stand: in one shell, in their order, in the folder of a service that runs. */
let apart: Awaited<ReturnType<typeof startApart>>
let blocks: string[]
let outputs: string[]
beforeAll(async () => {
  apart = await startApart()
  blocks = await blocksOf('README.md', 'Three paths')
  await apart.runUntil('ADMIN_PORT=$CORE_ADMIN_PORT npx tollgate start', ['Ctrl-C stops it'])
  const script = ['set +e', ...blocks.map((block) => `${block}\necho "== end"`)].join('\n')
  const text = await apart.run(script)
  outputs = text.split('== end\n')
}, 2 * startMs)
afterAll(() => apart.stop())

describe('the README', () => {
  it('has three paths, in which nothing is refused', () => {
    expect(blocks).toHaveLength(3)
    expect(outputs.join('')).not.toMatch(/\/problems\/|^tollgate: |command not found|SyntaxError/m)
  })

  it('leads an integrator from a user to a decision', () => {
    expect(outputs[0]).toContain('"balanceUsdMicros":"7500000"')
    expect(outputs[0]).toMatch(/"access_token":"[^]*"status":200,"auth_id":"app_[0-9a-f]+:ada"/)
  })

  it('leads an operator from an app to books that are right', () => {
    expect(outputs[1]).toMatch(/clientId +app_[^]*\nada +active[^]*\n[1-9]\d* payments signed/)
    expect(outputs[1]).toMatch(/the books are right[^]*"status":"ok"/)
  })

  it('leads an owner from a session to a new secret', () => {
    expect(outputs[2]).toMatch(/"domain":"https:\/\/shop\.example"[^]*"clientSecret":"svc_cs_/)
    expect(outputs[2]).toContain('"action":"client_secret_rotated"')
  })
})
