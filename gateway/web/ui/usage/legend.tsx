import type { ReactNode } from 'react'

interface Layer {
  readonly key: string
  readonly name: string
}

/** The names of a chart's layers, in the order from its bottom. */
export const Legend = ({ layers }: { layers: readonly Layer[] }): ReactNode => (
  <ul className="legend" aria-label="Layers of the chart">
    {layers.map(({ key, name }, index) => (
      <li key={key}>
        <svg className={`series-${index + 1}`} viewBox="0 0 1 1" aria-hidden="true">
          <rect width="1" height="1" />
        </svg>
        <bdi>{name}</bdi>
      </li>
    ))}
  </ul>
)
