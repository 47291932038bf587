import { describe, expect, it } from 'vitest'
import { formatCents } from '../../../../core/billing/payments/amounts.ts'
import { returnUrl } from '../../../../core/billing/payments/urls.ts'

const page = 'https://svc.example/pay/done'

describe('returnUrl', () => {
  it.each([
    'https://shop.example/paid?order=1',
    'http://localhost:3000/paid',
    'http://127.0.0.1/paid',
    'http://[::1]:8080/paid',
    'http://shop.localhost/paid',
  ])('keeps %s', (address) => {
    expect(returnUrl(address, page)).toBe(address)
  })

  it.each([
    undefined,
    '',
    '/paid',
    'http://shop.example/paid',
    'http://localhost.evil.example/paid',
    'javascript:alert(1)',
    'https://user:secret@shop.example/',
    `https://shop.example/${'a'.repeat(2_000)}`,
  ])('replaces %s by a page of the service', (address) => {
    expect(returnUrl(address, page)).toBe(page)
  })
})

it('formats cents with two decimals and a sign', () => {
  expect([0n, 5n, 1_234n, -5n].map(formatCents)).toEqual(['0.00', '0.05', '12.34', '-0.05'])
})
