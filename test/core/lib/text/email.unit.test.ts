import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { toDomain, normalizeEmail } from '../../../../core/lib/text/email.ts'

describe('normalizeEmail', () => {
  it.each([
    ['Ada@Example.COM', 'ada@example.com'],
    [' ada@example.com ', 'ada@example.com'],
    ["o'neil+tag@example.com", "o'neil+tag@example.com"],
    ['ada@Bücher.example', 'ada@xn--bcher-kva.example'],
    ['ada@xn--BCHER-kva.example', 'ada@xn--bcher-kva.example'],
    ['ada@ｅxample。com', 'ada@example.com'],
    ['owner@localhost', 'owner@localhost'],
  ])('normalizes %s to %s', (text, normal) => {
    expect(normalizeEmail(text)).toBe(normal)
  })

  it.each([
    '',
    'ada',
    '@example.com',
    'ada@',
    'İda@example.com',
    'ıda@example.com',
    '\u212Aim@example.com',
    'ada＠example.com',
    '"ada"@example.com',
    'a b@example.com',
    'a@b@example.com',
    'ada@ex ample.com',
    'ada@ex%61mple.com',
    'ada@example.com:80',
    'ada@example.com/x',
    'ada@example..com',
    'ada@-example.com',
    'ada@a_b.com',
    'ada@[127.0.0.1]',
    'ada@127.0.0.1',
    'ada@1.2.3',
    'ada@ex\u202Eample.com',
    'ada@exam\u00adple.com',
    `${'a'.repeat(65)}@example.com`,
    `ada@${'a.'.repeat(130)}com`,
  ])('returns null for %j', (text) => {
    expect(normalizeEmail(text)).toBeNull()
  })

  it('returns lower-case ASCII, and leaves a normal form unchanged', () => {
    const part = fc.string({ unit: 'grapheme', maxLength: 20 })
    const ascii = fc.stringMatching(/^[A-Za-z0-9.!#+_-]{1,20}$/)
    fc.assert(
      fc.property(fc.oneof(part, ascii), fc.oneof(part, ascii), (local, domain) => {
        const email = normalizeEmail(`${local}@${domain}`)
        if (email === null) return
        expect(email).toMatch(/^[\x21-\x7e]+$/)
        expect(email).not.toMatch(/[A-Z]/)
        expect(normalizeEmail(email)).toBe(email)
        expect(email.endsWith(`@${toDomain(email)}`)).toBe(true)
      }),
      { numRuns: 2_000 },
    )
  })
})
