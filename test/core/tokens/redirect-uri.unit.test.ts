import { describe, expect, it } from 'vitest'
import { isRegistered } from '../../../core/tokens/login/authorization-check.ts'

describe('isRegistered', () => {
  it.each([
    ['http://127.0.0.1:5/cb', 'http://127.0.0.1/cb', true],
    ['http://localhost:5/cb', 'http://localhost:9/cb', true],
    ['http://127.0.0.1/cb', 'http://127.0.0.1:7/cb', true],
    ['http://127.0.0.1:5/cb?a=1', 'http://127.0.0.1/cb?a=1', true],
    ['http://127.0.0.1:5/cb', 'http://127.0.0.1/cb/', false],
    ['http://127.0.0.2:5/cb', 'http://127.0.0.1/cb', false],
    ['http://127.0.0.1.evil.example/cb', 'http://127.0.0.1/cb', false],
    ['https://app.example:444/cb', 'https://app.example/cb', false],
    ['http://app.example:81/cb', 'http://app.example/cb', false],
  ])('compares %s with the registered %s: %s', (requested, registered, expected) => {
    expect(isRegistered(requested, [registered])).toBe(expected)
  })
})
