import type { ReactNode } from 'react'

/** The names of a chart's layers, in the order from its bottom. */
export const Legend = ({ names }: { names: readonly string[] }): ReactNode => (
  <ul className="legend" aria-label="Layers of the chart">
    {names.map((name, index) => (
      <li key={name}>
        <svg className={`series-${index + 1}`} viewBox="0 0 1 1" aria-hidden="true">
          <rect width="1" height="1" />
        </svg>
        <bdi>{name}</bdi>
      </li>
    ))}
  </ul>
)
