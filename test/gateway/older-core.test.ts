import { status } from '@grpc/grpc-js'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { type Harness, asRecord, startHarness } from './support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())
beforeEach(() => harness.core.reset())

async function visit(path: string): Promise<{ status: number; text: string }> {
  const headers = { cookie: `__Host-tollgate_session=${'x'.repeat(43)}` }
  const answer = await fetch(harness.gateway.platformUrl + path, { headers })
  return { status: answer.status, text: await answer.text() }
}

async function readIngest() {
  const answer = await visit('/api/v1/internal/operate/ingest')
  return { status: answer.status, body: asRecord(JSON.parse(answer.text)) }
}

it('has no sign-up and no mails before a core that does not know them', async () => {
  harness.core.fail('getSignUp', status.UNIMPLEMENTED)
  harness.core.fail('getMailDelivery', status.UNIMPLEMENTED)
  const signUp = await visit('/sign-up')
  expect([signUp.status, signUp.text.includes('Ask the operator')]).toEqual([404, true])
  const forgot = await visit('/forgot-password')
  expect([forgot.status, forgot.text.includes('This service sends no mail')]).toEqual([404, true])
})

it('shows streams without sidecars before a core that does not list them', async () => {
  const { body } = await readIngest()
  expect(body).toMatchObject({
    streams: [{ source: 'kafka:tickets:1', endReadAt: expect.any(String) }],
    sidecars: [{ id: 'sidecar-1', secondsBehind: 61 }],
  })
  harness.core.fail('listSidecars', status.UNIMPLEMENTED)
  const { sidecars: _, ...others } = body
  expect(await readIngest()).toEqual({ status: 200, body: others })
})

it('reports a core that fails', async () => {
  harness.core.fail('getSignUp', status.UNKNOWN)
  expect((await visit('/sign-up')).status).toBe(500)
  harness.core.fail('listSidecars', status.UNKNOWN)
  expect((await readIngest()).status).toBe(500)
})

it("reports core's own refusal, which is no sign of an older core", async () => {
  harness.core.refuse('listSidecars', 'METHOD_NOT_ALLOWED')
  expect((await readIngest()).status).toBe(405)
})
