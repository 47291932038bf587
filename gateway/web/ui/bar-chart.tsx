import { type ReactNode, useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { useIsDark } from './theme.ts'

interface BarChartProps {
  /** Unix seconds. */
  readonly at: readonly number[]
  /** One value for each bar and layer; layers are stacked, the first at the bottom. */
  readonly layers: readonly (readonly number[])[]
  /** From one bar to the next. Days are in UTC, shorter times in the reader's zone. */
  readonly stepSeconds?: number
  readonly isMoney: boolean
  /** The text for the bar under the pointer. */
  readonly describe: (index: number) => string
}

const height = 240
const daySeconds = 86_400

/** Bars over time. The view shows the same figures as a table. */
export function BarChart({
  at,
  layers,
  stepSeconds = daySeconds,
  isMoney,
  describe,
}: BarChartProps): ReactNode {
  const box = useRef<HTMLDivElement>(null)
  const hint = useRef<HTMLParagraphElement>(null)
  const isDark = useIsDark()
  useEffect(() => {
    const element = box.current
    if (!element) return undefined
    const showHint = ({ cursor: { idx } }: uPlot): void => {
      const text = typeof idx === 'number' ? describe(idx) : ''
      if (hint.current) hint.current.textContent = text
    }
    const chart = { isMoney, stepSeconds, layerCount: layers.length }
    const options = { ...optionsFor(element, chart), hooks: { setCursor: [showHint] } }
    const plot = new uPlot(options, [[...at], ...stack(layers)], element)
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      plot.destroy()
    }
  }, [at, layers, stepSeconds, isMoney, describe, isDark])
  return (
    <div aria-hidden="true">
      <div className="chart" ref={box} />
      <p className="chart-hint" ref={hint} />
    </div>
  )
}

/** Returns the tops of the stacked layers, the highest first, so that lower ones are drawn over it. */
function stack(layers: readonly (readonly number[])[]): number[][] {
  const tops: number[][] = []
  for (const layer of layers) {
    const below = tops.at(-1)
    tops.push(layer.map((value, index) => value + (below?.[index] ?? 0)))
  }
  return tops.reverse()
}

/** Steps between the ticks of an axis of counts: 1, 2, 5, 10 and so on. */
const wholeSteps = Array.from({ length: 12 }, (_, power) =>
  [1, 2, 5].map((first) => first * 10 ** power),
).flat()

interface Chart {
  readonly isMoney: boolean
  readonly stepSeconds: number
  readonly layerCount: number
}

function optionsFor(
  element: HTMLElement,
  { isMoney, stepSeconds, layerCount }: Chart,
): uPlot.Options {
  // A canvas needs the colour that the variable has in this theme.
  const color = (name: string): string => {
    element.style.color = `var(${name})`
    return getComputedStyle(element).color
  }
  const axis = {
    stroke: color('--soft'),
    grid: { stroke: color('--line'), width: 1 },
    ticks: { stroke: color('--line'), width: 1 },
    font: '12px system-ui, sans-serif',
  }
  const bars = uPlot.paths.bars?.({ size: [0.7, 40] })
  const layers = Array.from({ length: layerCount }, (_, index) => {
    const fill = color(layerCount === 1 ? '--accent' : `--series-${layerCount - index}`)
    const points = { show: false }
    return { stroke: fill, fill, width: 0, points, ...(bars && { paths: bars }) }
  })
  const tick = (value: number): string =>
    `${isMoney ? '$' : ''}${value.toLocaleString('en-US', { maximumFractionDigits: 6 })}`
  return {
    width: element.clientWidth,
    height,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    ...(stepSeconds === daySeconds && {
      tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1e3), 'Etc/UTC'),
    }),
    scales: {
      x: { range: (_, first, last) => [first - stepSeconds / 2, last + stepSeconds / 2] },
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.05 : 1] },
    },
    axes: [
      axis,
      {
        ...axis,
        size: 70,
        values: (_, values) => values.map(tick),
        // A count has no fractions.
        ...(!isMoney && { incrs: wholeSteps }),
      },
    ],
    series: [{}, ...layers],
  }
}
