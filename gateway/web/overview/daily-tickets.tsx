import { type ReactNode, useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import type { Schemas } from '../api/client.ts'
import { formatCount } from '../ui/amounts.ts'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { useIsDark } from '../ui/theme.ts'

type Day = Schemas['BillingSummary']['cycle']['timeline'][number]

const height = 240

/** Tickets of each UTC day as bars, and as a table for those who cannot see them. */
export function DailyTickets({ timeline }: { timeline: readonly Day[] }): ReactNode {
  const hasTickets = timeline.some(({ requestCount }) => requestCount > 0)
  return (
    <section className="card" aria-labelledby="daily">
      <h2 id="daily">Tickets by day</h2>
      {hasTickets ? (
        <>
          <Bars timeline={timeline} />
          <details>
            <summary>As a table</summary>
            <DayTable timeline={timeline.filter(({ requestCount }) => requestCount > 0)} />
          </details>
        </>
      ) : (
        <Empty>No ticket was signed for this app in this period.</Empty>
      )}
    </section>
  )
}

const DayTable = ({ timeline }: { timeline: readonly Day[] }): ReactNode => (
  <TableBox label="Table of days">
    <table>
      <caption>Days without tickets are left out.</caption>
      <thead>
        <tr>
          <th scope="col">Day (UTC)</th>
          <th scope="col" className="number">
            Tickets
          </th>
          <th scope="col" className="number">
            Network fee, wei
          </th>
        </tr>
      </thead>
      <tbody>
        {timeline.map(({ date, requestCount, feeWei }) => (
          <tr key={date}>
            <th scope="row">{date}</th>
            <td className="number">{formatCount(requestCount)}</td>
            <td className="number">{BigInt(feeWei).toLocaleString('en-US')}</td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

function Bars({ timeline }: { timeline: readonly Day[] }): ReactNode {
  const box = useRef<HTMLDivElement>(null)
  const isDark = useIsDark()
  useEffect(() => {
    const element = box.current
    if (!element) return undefined
    const plot = new uPlot(optionsFor(element), dataOf(timeline), element)
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      plot.destroy()
    }
  }, [timeline, isDark])
  return <div className="chart" ref={box} aria-hidden="true" />
}

function optionsFor(element: HTMLElement): uPlot.Options {
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
  return {
    width: element.clientWidth,
    height,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), 'Etc/UTC'),
    scales: { y: { range: (_, __, max) => [0, Math.max(1, max)] } },
    axes: [axis, { ...axis, size: 60 }],
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

const dataOf = (timeline: readonly Day[]): uPlot.AlignedData => [
  timeline.map(({ date }) => Date.parse(date) / 1e3),
  timeline.map(({ requestCount }) => requestCount),
]
