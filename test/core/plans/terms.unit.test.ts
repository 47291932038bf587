import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { formatDecimal18 } from '../../../core/lib/money.ts'
import {
  type PricedBundle,
  networkRate,
  parseRetailRate,
  toRetailRate,
  retailRules,
} from '../../../core/plans/terms.ts'
import { nameKey } from '../../../core/plans/offers/plan.ts'

const rate = (text: string): bigint => {
  const parsed = parseRetailRate(text)
  if (parsed === null) throw new Error(`${text} is no rate`)
  return parsed
}
const bundle = (pipeline: string, modelId: string, text: string | null): PricedBundle => ({
  id: `${pipeline}/${modelId}`,
  pipeline,
  modelId,
  retailRate: text === null ? null : rate(text),
})

describe('toRetailRate', () => {
  const rules = retailRules({
    retailRate: rate('0.0000012'),
    bundles: [
      bundle('text-to-image', 'sdxl', '0.000002'),
      bundle('text-to-image', '*', '0'),
      bundle('live', 'fast', '0.0000015'),
      bundle('llm', '*', null),
    ],
  })
  it.each([
    { job: ['text-to-image', 'sdxl'], rule: 'bundle', ratio: '2' },
    { job: ['text-to-image', 'flux'], rule: 'pipeline', ratio: '0' },
    // A ticket with model `*` matches no model bundle.
    { job: ['text-to-image', '*'], rule: 'pipeline', ratio: '0' },
    { job: ['live', 'fast'], rule: 'bundle', ratio: '1.5' },
    { job: ['live', 'slow'], rule: 'plan', ratio: '1.2' },
    { job: ['llm', 'any'], rule: 'plan', ratio: '1.2' },
    { job: ['', ''], rule: 'plan', ratio: '1.2' },
    { job: ['constructor', '__proto__'], rule: 'plan', ratio: '1.2' },
  ])(
    'returns the $rule rate for $job: $ratio',
    ({ job: [pipeline = '', modelId = ''], ...expected }) => {
      const { rate: ratio, ...other } = toRetailRate({ rules }, { pipeline, modelId })
      const bundleOf: Readonly<Record<string, string>> = { bundle: modelId, pipeline: '*' }
      const model = bundleOf[expected.rule]
      expect(other).toEqual({
        rule: expected.rule,
        bundleId: model === undefined ? null : `${pipeline}/${model}`,
      })
      expect(formatDecimal18(ratio)).toBe(expected.ratio)
    },
  )

  it('returns network price when no rate is set', () => {
    const none = retailRules({ retailRate: null, bundles: [bundle('live', '*', null)] })
    expect(toRetailRate({ rules: none }, { pipeline: 'live', modelId: 'x' })).toEqual({
      rate: networkRate,
      rule: 'pass_through',
      bundleId: null,
    })
    const zero = retailRules({ retailRate: 0n, bundles: [] })
    expect(toRetailRate({ rules: zero }, { pipeline: 'live', modelId: 'x' })).toMatchObject({
      rate: 0n,
      rule: 'plan',
    })
  })

  it('picks the most specific bundle for any order of bundles', () => {
    const word = fc.constantFrom('a', 'b', 'c')
    const named = fc.record({
      pipeline: word,
      modelId: fc.oneof(word, fc.constant('*')),
      retailRate: fc.option(fc.bigInt(0n, 10n ** 18n)),
    })
    const bundles = fc.uniqueArray(named, { selector: (b) => `${b.pipeline} ${b.modelId}` })
    fc.assert(
      fc.property(
        bundles,
        fc.option(fc.bigInt(0n, 10n ** 18n)),
        fc.tuple(word, word),
        (some, own, [p, m]) => {
          const all = some.map((one, i) => ({ ...one, id: `${i}` }))
          const of = (modelId: string) =>
            all.find((b) => b.pipeline === p && b.modelId === modelId && b.retailRate !== null)
          const expected = of(m)?.retailRate ?? of('*')?.retailRate ?? own ?? 10n ** 12n
          for (const order of [all, all.toReversed()]) {
            const found = toRetailRate(
              { rules: retailRules({ retailRate: own, bundles: order }) },
              { pipeline: p, modelId: m },
            )
            expect(found.rate).toBe(expected * 1_000_000n)
            expect(found.bundleId).toBe((of(m) ?? of('*'))?.id ?? null)
          }
        },
      ),
    )
  })
})

describe('parseRetailRate', () => {
  it.each([
    ['0', '0'],
    ['0.0000020', '0.000002'],
    ['0.000000', '0'],
    ['1', '1'],
    ['1.000000000000000000000000', '1'],
    ['0.000000000000000001', '0.000000000000000001'],
  ])('parses %s as %s', (text, normal) => expect(formatDecimal18(rate(text))).toBe(normal))

  it.each([
    ['an exponent', '1e-7'],
    ['no whole part', '.5'],
    ['no fraction', '1.'],
    ['more than 1', '1.000000000000000001'],
    ['a large number', '1000000'],
    ['40 digits', '0.0000000000000000000000000000000000000001'],
    ['40 digits before the point', '1'.repeat(40)],
    ['leading zeros', '00.1'],
    ['19 places', '0.0000000000000000001'],
    ['a negative', '-0.1'],
    ['a sign', '+0.1'],
    ['a blank', ' 0.1'],
    ['a line break', '0.1\n'],
    ['nothing', ''],
    ['a comma', '0,1'],
    ['Arabic digits', '٠.١'],
    ['full-width digits', '０.１'],
    ['hexadecimal', '0x1'],
    ['a word', 'NaN'],
    ['a long text', `0.${'0'.repeat(100)}`],
  ])('rejects %s', (_, text) => expect(parseRetailRate(text)).toBeNull())

  it('parses every formatted rate', () => {
    fc.assert(
      fc.property(fc.bigInt(0n, 10n ** 18n), fc.nat(20), (value, zeros) => {
        const text = formatDecimal18(value)
        const longer = text.includes('.') ? text + '0'.repeat(zeros) : text
        expect(parseRetailRate(longer)).toBe(value)
      }),
    )
  })
})

describe('nameKey', () => {
  it.each([
    ['Pro', 'pro'],
    [' Pro  Plus ', 'pro plus'],
    ['Pro\u00a0Plus', 'pro plus'],
    ['GRÖSSE', 'größe'],
    ['Gro\u0308ße', 'größe'],
    ['ﬁne', 'fine'],
    ['Ｐｒｏ', 'pro'],
    ['STRAẞE 1', 'straße 1'],
    ['STRASSE 1', 'straße 1'],
    ['ΟΔΟΣ', 'οδοσ'],
    ['İ', 'i̇'],
  ])('equates %s and %s', (one, other) => expect(nameKey(one)).toBe(nameKey(other)))

  const isOne = (name: string): boolean => {
    const key = nameKey(name)
    return [key, name.toUpperCase(), name.toLowerCase()].every((other) => nameKey(other) === key)
  }

  it('is stable and ignores case', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (name) => {
        expect(isOne(name)).toBe(true)
      }),
    )
  })

  it('is stable for every character that has a case', () => {
    const cased = Array.from({ length: 0x11_0000 - 0x800 }, (_, at) =>
      String.fromCodePoint(at < 0xd800 ? at : at + 0x800),
    ).filter((letter) => letter.toUpperCase() !== letter.toLowerCase())
    expect(cased.filter((letter) => !isOne(`a${letter}b`))).toEqual([])
  })
})
