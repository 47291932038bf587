import { writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { randomUUID } from 'node:crypto'
import { beforeAll, expect, it } from 'vitest'
import {
  type ForeignIssuer,
  newForeignKey,
  signForeign,
  startForeignIssuer,
} from '../../support/web/foreign-issuer.ts'
import { type TestApp, type TestCore } from '../../core/support.ts'
import { operate, startCli } from './support.ts'

const key = await newForeignKey('k1')
let core: TestCore
let app: TestApp
let idp: ForeignIssuer
beforeAll(async () => {
  idp = await startForeignIssuer([key])
  const cli = await startCli({ OUTBOUND_ALLOW: '127.0.0.1' })
  ;({ core, app } = cli)
  return async () => {
    await cli.stop()
    await idp.stop()
  }
})

const run = (line: string) => operate('issuer', ...line.split(' '), '--app', app.clientId)

it('adds, lists, checks and removes an issuer', async () => {
  expect((await run('list')).text).toBe('the app does not trust an issuer of its own\n')
  const added = await run(`add ${idp.url}/ --client-claim azp --client-value web --audience api`)
  const id = /^trusted: (\S+)\n$/.exec(added.text)?.[1] ?? ''
  const { text } = await run('list')
  for (const part of [id, idp.url, 'api', 'azp is web', 'sub']) expect(text).toContain(part)

  const at = Math.floor(core.clock.now().getTime() / 1000)
  const claims = { iss: idp.url, sub: 'ada', azp: 'web', aud: 'other', exp: at + 60 }
  const file = join(tmpdir(), `tollgate-token-${randomUUID()}`)
  await writeFile(file, `${await signForeign(key, claims)}\n`)
  const checked = await run(`check --file ${file}`)
  expect(checked.code).toBe(1)
  expect(checked.text).toMatch(/audience +NO +aud is "other": must name one of api/)
  expect(checked.text).toMatch(/signature +ok/)
  expect(checked.text).toContain('It identifies ada (unknown)')
  expect(checked.text).toContain('It would be refused.')
  await writeFile(file, await signForeign(key, { ...claims, aud: ['api'] }))
  expect(await run(`check --file ${file}`)).toEqual({
    code: 0,
    text: expect.stringContaining('It would be accepted.'),
  })

  expect((await run(`remove ${id}`)).text).toMatch(/^removed; the last permission ends by /)
  expect((await run('list')).text).toBe('the app does not trust an issuer of its own\n')
})

it('passes on the user claim and the address of the keys', async () => {
  const rules = { userClaim: 'email', userPrefix: 'other:', jwksUri: `${idp.url}/other/keys` }
  const flags = `--user-claim ${rules.userClaim} --user-prefix ${rules.userPrefix} --jwks-uri ${rules.jwksUri} --json`
  const added = JSON.parse((await run(`add ${idp.url}/other --audience api ${flags}`)).text)
  expect(added).toMatchObject({ rules })
  expect((await run('list')).text).toContain('other:email')
  const file = join(tmpdir(), `tollgate-token-${randomUUID()}`)
  await writeFile(file, await signForeign(key, { iss: `${idp.url}/other`, aud: 'api', exp: 1 }))
  expect((await run(`check --file ${file}`)).text).toContain('Warning: at common providers, users')
  await run(`remove ${added.id}`)
})

it('reports wrong usage and invalid rules', async () => {
  expect((await run('add')).text).toContain('needs one ISSUER')
  expect((await run('remove')).text).toContain('needs one ID')
  expect((await run(`add ${idp.url}`)).text).toContain('audiences')
})
