import { describe, expect, it } from 'vitest'
import { toModels } from '../../../gateway/web/ui/usage/models.ts'

const toRow = (pipeline: string, modelId: string, requestCount: number) => ({
  date: '2026-03-01',
  pipeline,
  modelId,
  requestCount,
  networkFeeUsdMicros: '0',
  ownerChargeUsdMicros: `${requestCount}`,
  platformFeeUsdMicros: '0',
})

describe('the models of a chart', () => {
  it('are the costliest first, and the sum of further ones last', () => {
    const rows = [
      toRow('other', 'other', 9),
      toRow('llm', 'llama', 1),
      toRow('live', 'sd', 2),
      { ...toRow('llm', 'llama', 4), date: '2026-03-02' },
    ]
    expect(toModels(rows, 'tickets').map(({ name, values }) => [name, [...values]])).toEqual([
      [
        'llm: llama',
        [
          [Date.parse('2026-03-01'), 1n],
          [Date.parse('2026-03-02'), 4n],
        ],
      ],
      ['live: sd', [[Date.parse('2026-03-01'), 2n]]],
      ['All further models', [[Date.parse('2026-03-01'), 9n]]],
    ])
  })

  it('lose no tickets of a model that is named like the sum of further ones', () => {
    const [rest] = toModels([toRow('other', 'other', 3), toRow('other', 'other', 4)], 'tickets')
    expect([...(rest?.values.values() ?? [])]).toEqual([7n])
  })

  it('have keys of their own although their names are equal', () => {
    const models = toModels([toRow('a: b', 'c', 1), toRow('a', 'b: c', 1)], 'tickets')
    expect(models.map(({ name }) => name)).toEqual(['a: b: c', 'a: b: c'])
    expect(new Set(models.map(({ key }) => key)).size).toBe(2)
  })
})
