import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { blocksOf, startApart, startMs } from './apart-support.ts'

/**
 * Runs the unchanged pages of the README's three paths: each in a separate shell, in the folder of
 * one service.
 */
const pages = ['docs/integrator.md', 'docs/operator.md', 'docs/app-owner.md'] as const
let apart: Awaited<ReturnType<typeof startApart>>
let blocks: string[]
let [integrator, operator, owner] = ['', '', '']
beforeAll(async () => {
  apart = await startApart()
  blocks = (await Promise.all(pages.map((page) => blocksOf(page, 'Twenty lines')))).flat()
  await apart.runUntil('ADMIN_PORT=$CORE_ADMIN_PORT npx tollgate start', ['Ctrl-C stops it'])
  const outputs: string[] = []
  for (const block of blocks) outputs.push(await apart.run(`set +e\n${block}`))
  ;[integrator = '', operator = '', owner = ''] = outputs
}, 3 * startMs)
afterAll(() => apart.stop())

describe('the pages of the README', () => {
  it('have a block of about twenty lines each, without errors', () => {
    expect(blocks).toHaveLength(pages.length)
    for (const block of blocks) {
      const lines = block.trim().split('\n').length
      expect([lines >= 17, lines <= 23]).toEqual([true, true])
    }
    expect(integrator + operator + owner).not.toMatch(
      /\/problems\/|^tollgate: |command not found|SyntaxError|Error:/m,
    )
  })

  it('are linked, and the front page lists what is not built', async () => {
    const readme = await readFile(join(import.meta.dirname, '../../README.md'), 'utf8')
    for (const page of pages) expect(readme).toContain(`](${page})`)
    const start = readme.split('\n').slice(0, 10).join(' ')
    expect(start).toMatch(/a dashboard\]\(docs\/dashboard\.md\).*Not built yet:.*invoices/)
  })

  it('lead an integrator from a user to a signer token', () => {
    expect(integrator).toMatch(/access_token: '[^]*balanceUsdMicros: '7500000'/)
  })

  it('lead an operator from an app to verified books', () => {
    expect(operator).toMatch(/clientId +app_[^]*"status":200,"auth_id":"app_[0-9a-f]+:bob"/)
    expect(operator).toMatch(/\n[1-9]\d* payments signed[^]*balance +5\.\d+ USD/)
    expect(operator).toMatch(/the books are right[^]*RATE_FIXED=3000[^]*"status":"ok"/)
  })

  it('lead an owner from a session to a plan and a new secret', () => {
    expect(owner).toMatch(/"domain":"https:\/\/shop\.example"[^]*"clientSecret":"svc_cs_/)
    expect(owner).toMatch(/eve@example\.com[^]*"0\.0000015"/)
    expect(owner).toContain('"action":"client_secret_rotated"')
  })
})
