import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createSmtp } from '../../../core/mail/smtp.ts'
import { type SmtpDouble, startSmtpServer } from '../../fakes/smtp.ts'

let server: SmtpDouble
beforeAll(async () => {
  server = await startSmtpServer()
})
afterAll(() => server.stop())

const letter = { subject: 'A subject', paragraphs: ['A text.'], reason: 'A reason.' }

const send = () =>
  createSmtp({
    server: {
      host: '127.0.0.1',
      port: server.port,
      isTls: false,
      requireTls: false,
      login: null,
    },
    from: () => ({ name: 'tollgate', address: 'mail@svc.example' }),
    publicUrl: 'https://svc.example',
    answerMs: 300,
  }).send({ id: 'a', email: 'ada@example.com', letter })

describe('a server that falls silent', () => {
  it.each(['MAIL', 'RCPT', 'DATA'] as const)('after %s postpones only that mail', async (verb) => {
    server.fail({ [verb]: '' })
    expect(await send()).toEqual({
      kind: 'postponed',
      why: 'the server did not answer in time',
    })
    server.fail({})
    expect(await send()).toEqual({ kind: 'sent' })
  })
})
