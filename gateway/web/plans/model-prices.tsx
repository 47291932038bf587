import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { type Catalog, appCatalogQuery } from '../api/plans.ts'
import { Button } from '../ui/button.tsx'
import { type ModelPrice, noBounds } from './draft.ts'

type Offer = Catalog['offers'][number]

interface ModelPricesProps {
  readonly clientId: string
  readonly models: readonly ModelPrice[]
  readonly onChange: (models: readonly ModelPrice[]) => void
}

/** Prices of single pipelines and models, which must be in the catalogue. */
export function ModelPrices({ clientId, models, onChange }: ModelPricesProps): ReactNode {
  const { data } = useQuery(appCatalogQuery(clientId))
  const offers = data?.offers ?? []
  const change = (key: string, changed: Partial<ModelPrice>): void =>
    onChange(models.map((model) => (model.key === key ? { ...model, ...changed } : model)))
  const add = (): void =>
    onChange([
      ...models,
      {
        key: `new ${models.length} ${Date.now()}`,
        pipeline: '',
        modelId: '*',
        percent: '',
        bounds: noBounds,
      },
    ])
  return (
    <fieldset className="choices one-column">
      <legend>Prices of single models</legend>
      <Options id="pipelines-offered" values={offers.map(toPipeline)} />
      {models.map(({ key, pipeline, modelId, percent }, index) => (
        <div key={key} className="row">
          <label>
            Pipeline {index + 1}
            <input
              required
              maxLength={200}
              placeholder="text-to-image"
              list="pipelines-offered"
              value={pipeline}
              onChange={(event) => change(key, { pipeline: event.target.value })}
            />
          </label>
          <label>
            Model (* is every model)
            <input
              required
              maxLength={200}
              list={`models-offered-${key}`}
              value={modelId}
              onChange={(event) => change(key, { modelId: event.target.value })}
            />
          </label>
          <Options
            id={`models-offered-${key}`}
            values={offers.filter((each) => each.pipeline === pipeline).map(toModel)}
          />
          <label>
            % of the network price
            <input
              inputMode="decimal"
              maxLength={20}
              value={percent}
              onChange={(event) => change(key, { percent: event.target.value })}
            />
          </label>
          <Button
            isSmall
            aria-label={`Remove the price of pipeline ${index + 1}`}
            onClick={() => onChange(models.filter((model) => model.key !== key))}
          >
            Remove
          </Button>
        </div>
      ))}
      <div>
        <Button isSmall onClick={add}>
          Add a price
        </Button>
      </div>
    </fieldset>
  )
}

const toPipeline = ({ pipeline }: Offer): string => pipeline
const toModel = ({ modelId }: Offer): string => modelId

/** Suggestions of the browser for a field; other text can be typed, too. */
const Options = ({ id, values }: { id: string; values: readonly string[] }): ReactNode => (
  <datalist id={id}>
    {[...new Set(values)].map((value) => (
      <option key={value} value={value} />
    ))}
  </datalist>
)
