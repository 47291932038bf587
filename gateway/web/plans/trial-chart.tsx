import type { ReactNode } from 'react'

/** Dollars as decimal texts: as booked, and with the draft. */
export interface Pair {
  readonly name: string
  readonly booked: string
  readonly trial: string
}

/** Pairs of bars from zero, one scale for all. The table beside them has the same figures. */
export function TrialChart({ pairs }: { pairs: readonly Pair[] }): ReactNode {
  const all = pairs.flatMap(({ booked, trial }) => [Number(booked), Number(trial)])
  const least = Math.min(0, ...all)
  const width = Math.max(0, ...all) - least || 1
  const bar = (value: number, y: number, className: string): ReactNode => (
    <rect
      className={className}
      x={((Math.min(0, value) - least) / width) * 100}
      y={y}
      width={(Math.abs(value) / width) * 100}
      height={9}
    />
  )
  return (
    <div className="pairs" aria-hidden="true">
      <p className="soft">
        <svg viewBox="0 0 10 10">
          <rect className="booked" width={10} height={10} />
        </svg>{' '}
        as booked{' '}
        <svg viewBox="0 0 10 10">
          <rect className="trial" width={10} height={10} />
        </svg>{' '}
        with this plan
      </p>
      {pairs.map(({ name, booked, trial }) => (
        <div key={name}>
          <span>{name}</span>
          <svg viewBox="0 0 100 20" preserveAspectRatio="none">
            {bar(Number(booked), 0, 'booked')}
            {bar(Number(trial), 11, 'trial')}
          </svg>
        </div>
      ))}
    </div>
  )
}
