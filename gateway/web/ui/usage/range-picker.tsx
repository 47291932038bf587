import {
  type FormEvent,
  type KeyboardEvent,
  type ReactNode,
  useEffect,
  useRef,
  useState,
} from 'react'
import { Button } from '../button.tsx'
import './usage.css'
import { Instant, Period } from '../instant.tsx'
import {
  type Preset,
  type Range,
  type RangeSearch,
  type Span,
  formatUtcDay,
  parseRangeSearch,
  findPreset,
  presets,
} from './range.ts'

const labels: Readonly<Record<Preset, string>> = {
  '1h': 'Last hour',
  '24h': '24 hours',
  '7d': '7 days',
  '30d': '30 days',
  month: 'This month',
  'last-month': 'Last month',
  '90d': '90 days',
  '1y': 'Year',
}

interface RangePickerProps {
  readonly search: RangeSearch
  readonly range: Range
  readonly onChoose: (search: RangeSearch) => void
}

/** Chooses the range of a view. With the focus inside, the keys 1 to 8 choose a preset, C days. */
export function RangePicker({ search, range, onChoose }: RangePickerProps): ReactNode {
  const preset = findPreset(search)
  const [isOpen, setIsOpen] = useState(preset === undefined)
  const choose = (chosen: Preset): void => {
    setIsOpen(false)
    onChoose({ range: chosen })
  }
  const onKey = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return
    const chosen = presets[Number(event.key) - 1]
    if (chosen !== undefined) choose(chosen)
    else if (event.key !== 'c') return
    else setIsOpen(true)
    event.preventDefault()
  }
  return (
    <div className="ranges" role="group" aria-label="Range" onKeyDown={onKey}>
      <div className="segments">
        {presets.map((each, index) => (
          <button
            key={each}
            type="button"
            aria-pressed={each === preset}
            aria-keyshortcuts={`${index + 1}`}
            title={`Key ${index + 1}`}
            onClick={() => choose(each)}
          >
            {labels[each]}
          </button>
        ))}
        <button
          type="button"
          aria-pressed={preset === undefined}
          aria-expanded={isOpen}
          aria-keyshortcuts="c"
          title="Key C"
          onClick={() => setIsOpen(!isOpen)}
        >
          Custom
        </button>
      </div>
      {isOpen && <Days key={`${search.from} ${search.to}`} range={range} onChoose={onChoose} />}
    </div>
  )
}

interface DaysProps {
  readonly range: Range
  readonly onChoose: (search: RangeSearch) => void
}

/** A form for the first and the last day. */
function Days({ range: { current }, onChoose }: DaysProps): ReactNode {
  const [from, setFrom] = useState(formatUtcDay(current.start))
  const [to, setTo] = useState(formatUtcDay(current.end - 1))
  const first = useRef<HTMLInputElement>(null)
  useEffect(() => first.current?.focus(), [])
  const show = (event: FormEvent): void => {
    event.preventDefault()
    const chosen = parseRangeSearch({ from, to })
    if (chosen.from !== undefined) onChoose(chosen)
  }
  return (
    <form className="row" onSubmit={show}>
      <label>
        First day (UTC)
        <input
          ref={first}
          type="date"
          required
          min="2020-01-01"
          max={to}
          value={from}
          onChange={(event) => setFrom(event.target.value)}
        />
      </label>
      <label>
        Last day (UTC)
        <input
          type="date"
          required
          min={from}
          value={to}
          onChange={(event) => setTo(event.target.value)}
        />
      </label>
      <Button type="submit">Show</Button>
    </form>
  )
}

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof Element && target.closest('input') !== null

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone

/** The dates of a range, those of the range before, and the zones in which they are. */
export const RangeDates = ({ range }: { range: Range }): ReactNode => (
  <>
    <SpanDates span={range.current} isOfDays={range.isOfDays} />, compared with{' '}
    <SpanDates span={range.before} isOfDays={range.isOfDays} />.{' '}
    {range.isOfDays
      ? `Days are in UTC; times of day are in your zone, ${zone}.`
      : `Times are in your zone, ${zone}.`}
  </>
)

const SpanDates = ({
  span: { start, end },
  isOfDays,
}: {
  span: Span
  isOfDays: boolean
}): ReactNode => {
  const [from, to] = [new Date(start).toISOString(), new Date(end - 1).toISOString()]
  if (isOfDays) return <Period from={from} to={to} />
  return (
    <>
      <Instant at={from} /> – <Instant at={new Date(end).toISOString()} />
    </>
  )
}
