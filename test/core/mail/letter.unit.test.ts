import { describe, expect, it } from 'vitest'
import { composeLetter } from '../../../core/mail/letters.ts'
import {
  packLetter,
  quoteName,
  renderHtml,
  renderText,
  toSubject,
  unpackLetter,
  withoutSecrets,
} from '../../../core/mail/letter.ts'

const site = 'https://svc.example'
const at = new Date('2026-03-10T12:00:30Z')
const invite = (appName: string) =>
  composeLetter(
    { kind: 'invitation', appName, role: 'admin', invitedBy: 'ada@example.com', until: at },
    site,
  )

describe('composeLetter', () => {
  it('names app, role, inviter and end of an invitation', () => {
    const letter = invite('Video <b>')
    expect(toSubject(letter)).toBe('Invitation to Video <b>')
    expect(renderText(letter)).toContain(
      'ada@example.com invites you to the app "Video <b>" as admin.',
    )
    expect(renderText(letter)).toContain('Answer the invitation:\nhttps://svc.example/invitations')
    expect(renderText(letter)).toContain('2026-03-10 12:00 UTC')
  })

  it('states that an account has no password', () => {
    const letter = composeLetter({ kind: 'password_reset', url: null, minutes: 30 }, site)
    expect(toSubject(letter)).toBe('Your account has no password')
    expect(renderText(letter)).not.toContain('reset-password')
  })
})

describe('a name that a tenant chose', () => {
  it.each([
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    '</title><img src=x onerror=alert(1)>',
    '&lt;b&gt;',
  ])('is only text in HTML: %s', (name) => {
    const html = renderHtml(invite(name))
    expect(html).not.toMatch(/<script|<img|' onmouseover|&lt;b&gt;/)
    expect(html).toContain('svc.example/invitations')
  })

  it.each(['x\r\nBcc: eve@example.com', 'x\nSubject: y', 'x\u2028y', 'a\u202Eb'])(
    'adds no line and no header: %j',
    (name) => {
      expect(toSubject(invite(name))).not.toMatch(/[\r\n\u2028\u202e]/)
      expect(renderText(invite(name))).not.toMatch(/^(?:Bcc|Subject|y)/m)
    },
  )

  it('is no link, and not endless', () => {
    expect(quoteName('pay at https://evil.example')).toBe('pay at https: //evil. example')
    expect(quoteName('reset at www.evil.example/x')).toBe('reset at www. evil. example/x')
    expect(quoteName('e-vil。example')).toBe('e-vil. example')
    expect(quoteName('Video 2.0, Inc.')).toBe('Video 2.0, Inc.')
    expect(quoteName('a'.repeat(500))).toHaveLength(100)
  })
})

describe('withoutSecrets', () => {
  it('removes the token of a link', () => {
    const url = `${site}/reset-password?token=abc`
    const letter = composeLetter({ kind: 'password_reset', url, minutes: 30 }, site)
    expect(renderText(letter)).toContain(url)
    expect(renderText(withoutSecrets(letter))).not.toContain('abc')
    expect(unpackLetter(packLetter(letter))).toEqual(letter)
  })
})
