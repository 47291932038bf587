import { type ReactNode, useState } from 'react'
import { Micros } from '../ui/amount.tsx'
import { parseDollars } from '../ui/amounts.ts'
import { rateOfPercent, sellAt } from '../ui/rates.ts'
import type { Draft, ModelPrice } from './draft.ts'

const networkRate = '0.000001'

/** What a job of a given network cost sells for with the draft. */
export function Preview({ draft }: { draft: Draft }): ReactNode {
  const [cost, setCost] = useState('0.01')
  const micros = parseDollars(cost)
  const rows = [
    { key: '', name: 'All other models', percent: draft.percent },
    ...draft.models.map(({ key, pipeline, modelId, percent }) => ({
      key,
      name: `${pipeline}, ${modelId}`,
      percent: percentOf(draft, { pipeline, percent }),
    })),
  ]
  return (
    <section className="card" aria-labelledby="preview">
      <h2 id="preview">Price of a job</h2>
      <label>
        A job that costs, in dollars at the network
        <input
          inputMode="decimal"
          maxLength={20}
          value={cost}
          onChange={(event) => setCost(event.target.value)}
        />
      </label>
      {micros === null ? (
        <p role="status">Type dollars with at most 6 decimals.</p>
      ) : (
        <dl className="facts">
          {rows.map(({ key, name, percent }) => (
            <div key={key}>
              <dt>{name}</dt>
              <dd>
                <Price micros={BigInt(micros)} percent={percent} />
              </dd>
            </div>
          ))}
        </dl>
      )}
    </section>
  )
}

/** A model sells at its own price, else at that of its pipeline, else at that of the plan. */
function percentOf(
  draft: Draft,
  { pipeline, percent }: Pick<ModelPrice, 'pipeline' | 'percent'>,
): string {
  const ofPipeline = draft.models.find(
    (model) => model.pipeline === pipeline && model.modelId === '*',
  )?.percent
  return [percent, ofPipeline, draft.percent].find((text) => text?.trim()) ?? ''
}

function Price({ micros, percent }: { micros: bigint; percent: string }): ReactNode {
  const rate = percent.trim() === '' ? networkRate : rateOfPercent(percent)
  if (rate === null) return <span className="soft">no price</span>
  return <Micros value={sellAt(micros, rate).toString()} />
}
