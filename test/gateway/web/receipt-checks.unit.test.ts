import { CompactSign, exportJWK, generateKeyPair } from 'jose'
import { describe, expect, it } from 'vitest'
import { type FindRoot, compareListed } from '../../../gateway/web/receipts/listed.ts'
import { checkReceipt, judge } from '../../../proto/receipts/check.ts'
import type { Key } from '../../../proto/receipts/document.ts'

const { privateKey, publicKey } = await generateKeyPair('ES256')
const key = { ...(await exportJWK(publicKey)), kid: 'old' }
const sign = (typ: string, claims: object) =>
  new CompactSign(
    new TextEncoder().encode(JSON.stringify({ iss: 'https://issuer.example', ...claims })),
  )
    .setProtectedHeader({ alg: 'ES256', typ, kid: 'old' })
    .sign(privateKey)

const place = { day: '2026-03-10', leafIndex: 0 }
const document = {
  receipt: await sign('tollgate-receipt+jwt', { ticket: { clientId: 'app' }, place }),
  root: await sign('tollgate-receipt-root+jwt', { clientId: 'app', day: place.day, treeSize: 1 }),
  proof: { ...place, treeSize: 1, inclusionPath: [] },
}
interface Answers {
  readonly keys?: readonly Key[]
  readonly findRoot?: FindRoot
}
const check = ({ keys = [key], findRoot = async () => null }: Answers) =>
  checkReceipt(document, {
    keys,
    issuer: null,
    roots: { areNeeded: false, compare: compareListed(findRoot) },
  })
const listed = async (findRoot: FindRoot) =>
  (await check({ findRoot })).checks.find(({ name }) => name === 'Root that the service lists')
const refusal = (status: number) => async () => {
  throw Object.assign(new Error('It says no.'), { status })
}

describe('checks of a receipt in the browser', () => {
  it('calls a receipt neither right nor wrong without the key of its signature', async () => {
    const { checks, claims } = await check({ keys: [] })
    expect(claims).toBeNull()
    expect(checks).toMatchObject([{ name: 'Signature of the receipt', isRight: null }])
    expect(checks[0]?.text).toContain('Use the keys that you kept.')
    expect(judge(checks)).toBe('open')
  })

  it('calls a receipt wrong whose signature another key with the same id made', async () => {
    const other = await generateKeyPair('ES256')
    const { checks } = await check({
      keys: [{ ...(await exportJWK(other.publicKey)), kid: 'old' }],
    })
    expect(judge(checks)).toBe('wrong')
  })

  it.each([403, 404])('reads %i as a root that the service does not list', async (status) => {
    const found = await listed(refusal(status))
    expect(found).toMatchObject({ isRight: null, text: expect.stringContaining('lists no root') })
    expect(judge(found ? [found] : [])).toBe('right')
  })

  it.each([0, 401, 500, 503])(
    'reports after %i that the list could not be read',
    async (status) => {
      const found = await listed(refusal(status))
      expect(found).toMatchObject({
        isRight: null,
        text: 'The list could not be read: It says no.',
      })
      expect(judge(found ? [found] : [])).toBe('open')
    },
  )
})
