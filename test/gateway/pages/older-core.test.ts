import { status } from '@grpc/grpc-js'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Harness, startHarness } from '../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())

async function visit(path: string): Promise<{ status: number; text: string }> {
  const answer = await fetch(harness.gateway.platformUrl + path)
  return { status: answer.status, text: await answer.text() }
}

it('has no sign-up and no mails before a core that does not know them', async () => {
  harness.core.fail('getSignUp', status.UNIMPLEMENTED)
  harness.core.fail('getMailDelivery', status.UNIMPLEMENTED)
  const signUp = await visit('/sign-up')
  expect([signUp.status, signUp.text.includes('Ask the operator')]).toEqual([404, true])
  const forgot = await visit('/forgot-password')
  expect([forgot.status, forgot.text.includes('This service sends no mail')]).toEqual([404, true])
})

it('reports a core that fails', async () => {
  harness.core.fail('getSignUp', status.UNKNOWN)
  expect((await visit('/sign-up')).status).toBe(500)
})
