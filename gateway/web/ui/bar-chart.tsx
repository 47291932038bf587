import { type ReactNode, useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { useIsDark } from './theme.ts'

interface BarChartProps {
  /** Unix seconds. */
  readonly at: readonly number[]
  readonly values: readonly number[]
  readonly isMoney: boolean
  /** The text for the bar under the pointer. */
  readonly describe: (index: number) => string
}

const height = 240
const halfDay = 43_200

/** Bars over UTC days. The view shows the same figures as a table. */
export function BarChart({ at, values, isMoney, describe }: BarChartProps): ReactNode {
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
    const options = { ...optionsFor(element, isMoney), hooks: { setCursor: [showHint] } }
    const plot = new uPlot(options, [[...at], [...values]], element)
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      plot.destroy()
    }
  }, [at, values, isMoney, describe, isDark])
  return (
    <div aria-hidden="true">
      <div className="chart" ref={box} />
      <p className="chart-hint" ref={hint} />
    </div>
  )
}

function optionsFor(element: HTMLElement, isMoney: boolean): uPlot.Options {
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
  const tick = (value: number): string =>
    `${isMoney ? '$' : ''}${value.toLocaleString('en-US', { maximumFractionDigits: 6 })}`
  return {
    width: element.clientWidth,
    height,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), 'Etc/UTC'),
    scales: {
      x: { range: (_, first, last) => [first - halfDay, last + halfDay] },
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.05 : 1] },
    },
    axes: [axis, { ...axis, size: 70, values: (_, values) => values.map(tick) }],
    series: [
      {},
      {
        stroke: color('--accent'),
        fill: color('--accent'),
        width: 0,
        points: { show: false },
        ...(bars && { paths: bars }),
      },
    ],
  }
}
