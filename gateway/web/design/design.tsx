import type { ReactNode } from 'react'
import { Page } from '../ui/page.tsx'
import { Charts } from './charts.tsx'
import { Controls } from './controls.tsx'
import { States } from './states.tsx'
import { Values } from './values.tsx'

/**
 * The parts of the design system in all their states, with sample data: for people who build views,
 * and for the checks of accessibility. It asks the server for nothing.
 */
export const Design = (): ReactNode => (
  <Page title="Design" about="The parts that all views are made of. The data are samples.">
    <Colors />
    <Controls />
    <Values />
    <Charts />
    <States />
  </Page>
)

const colors: readonly (readonly [name: string, use: string])[] = [
  ['accent', 'main actions, bars'],
  ['link', 'links'],
  ['text', 'text'],
  ['soft', 'labels, remarks'],
  ['page', 'behind cards'],
  ['card', 'cards, fields'],
  ['line', 'between rows'],
  ['edge', 'around fields'],
  ['hover', 'under the pointer'],
  ['bad', 'refusals'],
  ['bad-soft', 'behind refusals'],
  ['good', 'success'],
  ['good-soft', 'behind success'],
  ['warn', 'warnings'],
  ['warn-soft', 'behind warnings'],
]

const Colors = (): ReactNode => (
  <section className="card" aria-labelledby="colors">
    <h2 id="colors">Colours</h2>
    <p className="soft">
      Each has a light and a dark value. Pages of login and payments have the same.
    </p>
    <ul className="list swatches">
      {colors.map(([name, use]) => (
        <li key={name}>
          <svg viewBox="0 0 40 24" width="40" height="24" aria-hidden="true">
            <rect
              x="0.5"
              y="0.5"
              width="39"
              height="23"
              rx="6"
              fill={`var(--${name})`}
              stroke="var(--edge)"
            />
          </svg>
          <span>
            <code>{name}</code> <small className="soft">{use}</small>
          </span>
        </li>
      ))}
    </ul>
  </section>
)
