import { describe, expect, it } from 'vitest'
import { createEnvReader } from '../../../core/lib/env.ts'
import { chooseDelivery, readMailConfig } from '../../../core/mail/config.ts'

const from = { MAIL_FROM: 'tollgate <mail@svc.example>' }

function read(env: Record<string, string>, isEmbedded = false) {
  const reader = createEnvReader(env, { isEmbedded })
  const config = readMailConfig(reader)
  return { server: config.server(), from: config.from(), delivery: chooseDelivery(config), reader }
}

describe('SMTP_URL', () => {
  it.each([
    ['smtp://relay', { host: 'relay', port: 587, isTls: false, requireTls: false, login: null }],
    [
      'smtp://me:p%40ss%2Fword@smtp.example:2525',
      {
        host: 'smtp.example',
        port: 2525,
        isTls: false,
        requireTls: true,
        login: { user: 'me', pass: 'p@ss/word' },
      },
    ],
    [
      'smtps://me%40svc.example:secret@smtp.example',
      {
        host: 'smtp.example',
        port: 465,
        isTls: true,
        requireTls: false,
        login: { user: 'me@svc.example', pass: 'secret' },
      },
    ],
    [
      'smtp://me:secret@[::1]:25/',
      {
        host: '::1',
        port: 25,
        isTls: false,
        requireTls: false,
        login: { user: 'me', pass: 'secret' },
      },
    ],
  ])('reads %s', (url, server) => {
    const config = read({ SMTP_URL: url, ...from })
    expect(config.reader.problems).toEqual([])
    expect(config.server).toEqual(server)
    expect(config.delivery).toBe('smtp')
  })

  it.each([
    'https://smtp.example',
    'smtp.example:25',
    'smtp://me@smtp.example',
    'smtp://:secret@smtp.example',
    'smtp://me:100%@smtp.example',
    'smtp://smtp.example/path',
    'smtp://smtp.example?pool=true',
  ])('refuses %s', (url) => {
    const { problems } = read({ SMTP_URL: url, ...from }).reader
    expect(problems).toEqual([expect.stringContaining('SMTP_URL must be')])
  })

  it('is a secret that a reload replaces', () => {
    const { settings } = read({ SMTP_URL: 'smtp://relay', ...from }).reader
    const setting = settings.find(({ name }) => name === 'SMTP_URL')
    expect(setting).toMatchObject({ secret: true, reloads: true })
  })

  it('is replaced by a page only in the all-in-one service', () => {
    expect([read({}).delivery, read({}, true).delivery]).toEqual(['none', 'page'])
  })
})

describe('MAIL_FROM', () => {
  it.each([
    ['mail@Svc.example', { name: 'tollgate', address: 'mail@svc.example' }],
    ['Our service <mail@svc.example>', { name: 'Our service', address: 'mail@svc.example' }],
  ])('reads %s', (text, sender) => {
    expect(read({ SMTP_URL: 'smtp://relay', MAIL_FROM: text }).from).toEqual(sender)
  })

  it.each(['nobody', 'a <b> <c@d.example>', 'Our service mail@svc.example', '<>'])(
    'refuses %s',
    (text) => {
      const { problems } = read({ SMTP_URL: 'smtp://relay', MAIL_FROM: text }).reader
      expect(problems).toEqual([expect.stringContaining('MAIL_FROM must be')])
    },
  )

  it('must be set together with SMTP_URL', () => {
    expect(read({ SMTP_URL: 'smtp://relay' }).reader.problems).toEqual([
      expect.stringContaining('MAIL_FROM must be set'),
    ])
  })
})
