import { assert, constantFrom, property, string } from 'fast-check'
import { describe, expect, it } from 'vitest'
import { editsBetween, nearest } from '../../../../core/lib/names/did-you-mean.ts'
import { settingNames } from '../../../../core/lib/settings/names.ts'
import { unknownSettings } from '../../../../core/lib/settings/unknown.ts'

describe('unknownSettings', () => {
  it.each([
    ['CORE_TOKN', 'did you mean CORE_TOKEN?'],
    ['DATABSE_URL', 'did you mean DATABASE_URL?'],
    ['database_url', 'did you mean DATABASE_URL?'],
    ['TOLLGATE_DATADIR', 'did you mean TOLLGATE_DATA_DIR?'],
    ['TOLLGATE_ANYTHING', './tollgate config'],
    ['CORE_TOKEN_BROWSER', './tollgate config'],
    [
      'UNPAID_NETWORK_USD',
      "a setting of an earlier release; remove it: the account of an app's owner",
    ],
    ['ACCESS_MIN_USD_MICROS', 'a setting of an earlier release; remove it: a call needs a lease'],
  ])('reports a variable that resembles a setting: %s', (name, hint) => {
    const lines = unknownSettings({ [name]: 'a-value-that-stays-secret' })
    expect(lines).toEqual([expect.stringContaining(hint)])
    expect(lines.join()).toMatch(new RegExp(`^${name} \\(environment\\)`))
    expect(lines.join()).not.toContain('stays-secret')
  })

  it.each([
    'PATH',
    'HOME',
    'HOSTNAME',
    'LANG',
    'PWD',
    'SHLVL',
    'TERM',
    'NODE_OPTIONS',
    'npm_config_cache',
  ])('ignores a variable of other programs: %s', (name) =>
    expect(unknownSettings({ [name]: 'x' })).toEqual([]),
  )

  it('accepts every setting', () =>
    expect(unknownSettings(Object.fromEntries(settingNames.map((name) => [name, 'x'])))).toEqual(
      [],
    ))
})

describe('editsBetween and nearest', () => {
  const name = string({ maxLength: 12, unit: constantFrom('A', 'B', '_') })

  it('is 0 only for equal names, symmetric, and at most the longer length', () =>
    assert(
      property(name, name, (a, b) => {
        expect(editsBetween(a, b) === 0).toBe(a === b)
        expect(editsBetween(a, b)).toBe(editsBetween(b, a))
        expect(editsBetween(a, b)).toBeLessThanOrEqual(Math.max(a.length, b.length))
      }),
    ))

  it('counts a swap of neighbours once', () => expect(editsBetween('rate', 'raet')).toBe(1))

  it('finds no name for a short or strange word', () => {
    expect(nearest('ab', ['cd', 'abc'])).toBeUndefined()
    expect(nearest('zzzzzz', ['status', 'rate'])).toBeUndefined()
  })
})
