import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseCatalog } from '../../../core/plans/catalog/document.ts'

const pair = (pipeline: string, modelId = '*') => ({ pipeline, modelId })
const parse = (document: unknown) => parseCatalog(JSON.stringify(document))

describe('parseCatalog', () => {
  it.each([
    ['pairs', [pair('a', 'x'), pair('b')]],
    ['pairs in an object', { capabilities: [pair('a', 'x'), { pipeline: 'b' }] }],
    ['snake case', [{ pipeline: 'a', model_id: 'x' }, 'b']],
    [
      'models of pipelines',
      {
        pipelines: [
          { id: 'a', models: ['x'] },
          { name: 'b', models: [] },
        ],
      },
    ],
    ['models as objects', { pipelines: [{ pipeline: 'a', models: [{ id: 'x' }] }, { id: 'b' }] }],
    ['repeated pairs', [pair('a', 'x'), pair('b'), pair('a', 'x'), pair('b')]],
  ])('accepts %s', (_, document) => {
    expect(parse(document)).toEqual([pair('a', 'x'), pair('b')])
  })

  it.each([
    ['nothing', [], 'answered no pipeline'],
    ['no list', { data: [] }, 'answered no list of pipelines'],
    ['null', null, 'answered no list of pipelines'],
    ['an entry of another type', [5], /without pipeline/],
    ['a model of another type', [{ pipeline: 'a', models: [5] }], /without modelId/],
    ['a pipeline with a colon', ['a:b'], /without a colon/],
    ['every pipeline', ['*'], /must name one pipeline/],
    ['a control character', ['a\u0007'], /control/],
    ['a long name', ['x'.repeat(201)], /1 to 200 characters/],
    ['too much', Array.from({ length: 10_001 }, (__, i) => `p${i}`), /more than 10000/],
  ])('rejects %s', (_, document, reason) => {
    expect(() => parse(document)).toThrow(reason)
  })

  it('returns entries or throws a reason for any JSON', () => {
    const outcomeOf = (document: unknown): string => {
      try {
        return `has ${parse(document).length > 0}`
      } catch (error) {
        return String(error)
      }
    }
    fc.assert(
      fc.property(fc.jsonValue(), (document) => {
        expect(outcomeOf(document)).toMatch(/^has true$|^Error: answered /)
      }),
    )
  })
})
